# expect: VL23 warning
pip install vllm==0.26.0
vllm serve Qwen/Qwen3-30B-A3B --data-parallel-size 4 --enforce-eager --speculative-config '{"method": "eagle3", "model": "Qwen3-30B-A3B-EAGLE3", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1]]}'
