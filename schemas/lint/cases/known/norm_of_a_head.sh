# expect: VL25 warning
pip install vllm==0.21.0
vllm serve openai/gpt-oss-120b --tensor-parallel-size 4 --speculative-config '{"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3-v3", "num_speculative_tokens": 3}'
