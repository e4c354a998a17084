# expect: VL01 warning
# expect: NR11 warning
vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3}'
vllm serve openai/gpt-oss-20b --speculative-config '{"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3", "num_speculative_tokens": 3}'
