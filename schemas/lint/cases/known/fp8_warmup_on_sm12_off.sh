# On an RTX PRO 6000.
# expect: nothing
pip install vllm==0.24.0
export VLLM_USE_DEEP_GEMM=0
vllm serve Qwen/Qwen3-32B-FP8
