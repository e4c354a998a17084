# expect: VL25 warning
pip install vllm==0.29.0
vllm serve unsloth/gemma-4-31b-it-nvfp4 --kv-cache-dtype fp8 --speculative-config '{"method": "mtp", "model": "google/gemma-4-31B-it-assistant", "num_speculative_tokens": 3}'
