# On A100. expect: VL24 warning
vllm serve Qwen/Qwen3.8-27B \
  --speculative-config '{"method": "dflash", "model": "org/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 7}'
