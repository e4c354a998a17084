# expect: SD204 error
# The config says float32, which the prefill engine keeps.
pip install sglang==0.5.21
sglang serve --model-path Qwen/Qwen3.5-35B-A3B --disaggregation-mode prefill &
sglang serve --model-path Qwen/Qwen3.5-35B-A3B --disaggregation-mode decode --mamba-ssm-dtype bfloat16
