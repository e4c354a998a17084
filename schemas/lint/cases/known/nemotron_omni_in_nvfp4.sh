# expect: VL24 warning
pip install vllm==0.28.0
vllm serve nvidia/Nemotron-3-Super-Omni-NVFP4 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
