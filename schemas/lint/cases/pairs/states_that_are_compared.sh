# expect: SD204 error
pip install sglang==0.5.21
sglang serve --model-path Qwen/Qwen3.5-27B --disaggregation-mode prefill --mamba-ssm-dtype float32 &
sglang serve --model-path Qwen/Qwen3.5-27B --disaggregation-mode decode --mamba-ssm-dtype bfloat16
