# On an Intel Arc Pro B70. expect: VL24 warning
vllm serve /model --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
