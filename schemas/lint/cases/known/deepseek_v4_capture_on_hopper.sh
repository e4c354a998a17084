# On an H20.
# expect: VL24 warning
pip install vllm==0.27.1
vllm serve deepseek-ai/DeepSeek-V4-Flash -tp 8 --kv-cache-dtype fp8
