# expect: VL24 warning
# vllm==0.13.0
vllm serve Qwen/Qwen3-VL-8B-Instruct --speculative-config '{"method":"eagle3","model":"org/Qwen3-VL-8B-Instruct-Eagle3","num_speculative_tokens":3}'
