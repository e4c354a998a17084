# On an RTX PRO 6000.
# expect: VL24 warning
pip install vllm==0.24.0
vllm serve Qwen/Qwen3-32B-FP8
