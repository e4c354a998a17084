# expect: VL24 warning
pip install vllm==0.29.0
vllm serve org/m --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3, "use_local_argmax_reduction": true, "draft_sample_method": "probabilistic"}'
