# expect: VL24 warning
export HCCL_BUFFSIZE=200
vllm serve Qwen/Qwen3.6-27B --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3.6-27B-DFlash", "num_speculative_tokens": 7}'
