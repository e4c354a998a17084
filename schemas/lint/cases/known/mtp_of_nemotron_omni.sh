# expect: VL24 warning
pip install vllm==0.27.1
vllm serve nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
