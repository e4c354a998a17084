# expect: VL24 warning
pip install vllm==0.26.0
vllm serve Qwen/Qwen3.5-122B-A10B-GPTQ-Int4 --tensor-parallel-size 4 --no-enable-prefix-caching --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
