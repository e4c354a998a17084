# No kind of speculation runs with it up to 0.11.0.
# expect: VL36 error
pip install vllm==0.11.0
vllm serve org/m --async-scheduling --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}'
