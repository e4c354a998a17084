# On A100, where it draws its drafts and nothing says how. expect: VL24 warning
# expect: VL25 warning
vllm serve Qwen/Qwen3.8-27B \
  --speculative-config '{"method": "dflash", "model": "org/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 7}'
