# expect: VL24 warning
pip install vllm==0.23.0
vllm serve zai-org/GLM-5.2-FP8 --tensor-parallel-size 8 --max-model-len 327680 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
