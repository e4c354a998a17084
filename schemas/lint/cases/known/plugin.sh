# The plugin has models and kernels of its own: information only.
# expect: nothing
# Recipe of atom-vllm for 8x MI355X.
vllm serve zai-org/GLM-5-FP8 --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
