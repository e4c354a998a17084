# expect: VL24 warning
# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.24.0
VLLM_USE_V2_MODEL_RUNNER=1 vllm serve Qwen/Qwen3.6-27B \
  --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3.6-27B-DFlash", "num_speculative_tokens": 8}'
