# expect: VL24 error
pip install vllm==0.28.0
vllm serve org/m --speculative-config '{"method": "dspark", "model": "RadixArk/Qwen3.8-27B-DSpark", "num_speculative_tokens": 7}'
