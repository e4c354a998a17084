# expect: VL25 warning
export HCCL_BUFFSIZE=200
vllm serve Qwen/Qwen3.5-122B-A10B --speculative-config '{"method": "mtp", "num_speculative_tokens": 13}'
