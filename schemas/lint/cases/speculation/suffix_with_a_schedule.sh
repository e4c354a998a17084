# expect: VL23 error
pip install vllm==0.28.0
vllm serve org/m --speculative-config '{"method": "suffix", "num_speculative_tokens": 8, "num_speculative_tokens_per_batch_size": [[1, 4, 8], [5, 64, 2]]}'
