# expect: nothing
# On 8x H200
pip install vllm==0.30.0
vllm serve zai-org/GLM-5.2-FP8 --tensor-parallel-size 8 --speculative-config '{"method": "dspark", "model": "GLM-5.2-DSpark", "num_speculative_tokens": 7}'
