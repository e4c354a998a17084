# expect: nothing
pip install vllm==0.22.0
vllm serve openai/gpt-oss-120b --tensor-parallel-size 4 --speculative-config '{"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3-v3", "num_speculative_tokens": 3}'
