# expect: nothing
# A variable may decide the format on the prefill engine.
pip install sglang==0.5.21
SGLANG_MAMBA_SSM_DTYPE=bfloat16 sglang serve --model-path Qwen/Qwen3.5-35B-A3B --disaggregation-mode prefill &
sglang serve --model-path Qwen/Qwen3.5-35B-A3B --disaggregation-mode decode --mamba-ssm-dtype bfloat16
