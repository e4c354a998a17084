# expect: VL36 error
pip install vllm==0.23.0
vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8 -dcp 8 --cp-kv-cache-interleave-size 16 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
