# expect: nothing
pip install vllm==0.11.2
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --enable-expert-parallel --enable-eplb --speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
