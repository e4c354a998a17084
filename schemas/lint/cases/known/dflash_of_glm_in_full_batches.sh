# expect: VL25 warning
pip install vllm==0.28.0
vllm serve Inferact/GLM-5.3-NVFP4 -tp 8 \
  --speculative-config '{"method": "dflash", "model": "incoai/GLM-5.3-DFlash", "num_speculative_tokens": 7}'
