# expect: VL25 warning
# expect: VL25 warning
pip install vllm==0.24.0
vllm serve zai-org/GLM-5.2-FP8 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
