# expect: nothing
pip install vllm==0.14.0
vllm serve zai-org/GLM-4.6-FP8 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
