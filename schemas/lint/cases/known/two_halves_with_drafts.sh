# expect: VL24 warning
pip install vllm==0.25.1
vllm serve org/m -dp 2 --enable-expert-parallel --enable-dbo --all2all-backend deepep_low_latency --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}'
