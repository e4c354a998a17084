# expect: VL32 error
pip install vllm==0.28.0
VLLM_USE_V2_MODEL_RUNNER=1 vllm serve org/m \
  --speculative-config '{"method": "eagle3", "model": "org/d", "num_speculative_tokens": 3, "parallel_drafting": true}'
