# The name of the target says which class it probably has, and no more.
# expect: VL15 warning
vllm serve someone/Qwen3-8B-Instruct-Mine --speculative-config '{"method": "eagle3", "num_speculative_tokens": 3}'
