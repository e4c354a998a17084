# expect: VL25 warning
pip install vllm==0.13.0
vllm serve zai-org/GLM-4.6-FP8 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
