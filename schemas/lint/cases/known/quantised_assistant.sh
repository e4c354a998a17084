# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.24.0
vllm serve RedHatAI/gemma-4-31B-it-FP8-block --speculative-config '{"method": "mtp", "model": "RedHatAI/gemma-4-31B-it-assistant-FP8-block", "num_speculative_tokens": 3}'
