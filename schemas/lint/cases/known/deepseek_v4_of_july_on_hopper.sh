# On an H100.
# expect: VL25 warning
pip install vllm==0.26.0
vllm serve deepseek-ai/DeepSeek-V4-Flash-0731 -tp 8 --enable-expert-parallel --kv-cache-dtype fp8
