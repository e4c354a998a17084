# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.17.1
vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct --tensor-parallel-size 4 --speculative-config '{"method": "suffix", "num_speculative_tokens": 8}'
