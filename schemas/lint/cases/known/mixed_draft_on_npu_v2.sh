# expect: nothing
export HCCL_BUFFSIZE=200
export VLLM_USE_V2_MODEL_RUNNER=1
vllm serve Qwen/Qwen3.6-27B --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3.6-27B-DFlash", "num_speculative_tokens": 7}'
