# On a DGX Spark (GB10).
# expect: VL24 warning
pip install vllm==0.30.0
vllm serve deepseek-ai/DeepSeek-V4-Flash-Vision-Exp -tp 2 --kv-cache-dtype fp8
