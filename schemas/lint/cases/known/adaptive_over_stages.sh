# expect: VL24 error
pip install vllm==0.33.0
vllm serve org/target --pipeline-parallel-size 2 \
  --speculative-config '{"method": "dflash", "model": "org/draft", "num_speculative_tokens": 5, "enable_adaptive_verification": true}'
