# expect: VL24 warning
pip install vllm==0.10.2
export VLLM_ALL2ALL_BACKEND=deepep_low_latency
vllm serve deepseek-ai/DeepSeek-R1 -dp 8 --enable-expert-parallel --speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
