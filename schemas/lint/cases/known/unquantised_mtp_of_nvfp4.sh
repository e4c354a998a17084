# expect: VL24 error
pip install vllm==0.23.0
vllm serve nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
