# expect: VL24 warning
pip install vllm==0.27.0
vllm serve nvidia/GLM-5.2-NVFP4 --tensor-parallel-size 4 --speculative-config '{"method": "dspark", "model": "GLM-5.2-DSpark", "num_speculative_tokens": 7}'
