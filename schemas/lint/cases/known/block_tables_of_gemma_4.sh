# expect: VL24 warning
# expect: VL24 warning
pip install vllm==0.22.0
vllm serve google/gemma-4-31B-it --speculative-config '{"method": "mtp", "model": "google/gemma-4-31B-it-assistant", "num_speculative_tokens": 3}'
