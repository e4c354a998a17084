# expect: nothing
pip install vllm==0.29.0
vllm serve LiquidAI/LFM2.5-8B-A1B --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
