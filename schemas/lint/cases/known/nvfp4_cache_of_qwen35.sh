# On a B200.
# expect: VL25 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3.5-397B-A17B-FP8 --kv-cache-dtype nvfp4
