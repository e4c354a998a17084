# expect: VL24 warning
# expect: VL24 warning
# expect: VL24 warning
pip install vllm==0.22.0
vllm serve google/gemma-4-E4B-it --tensor-parallel-size 2 --speculative-config '{"method": "mtp", "model": "google/gemma-4-E4B-it-assistant", "num_speculative_tokens": 3}'
