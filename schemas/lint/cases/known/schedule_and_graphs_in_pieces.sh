# What the finding about full graphs suggests.
# expect: nothing
pip install vllm==0.28.0
vllm serve zai-org/GLM-4.7 --tensor-parallel-size 8 --compilation-config '{"cudagraph_mode": "PIECEWISE"}' \
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 4, "num_speculative_tokens_per_batch_size": [[1, 48, 4], [49, 1024, 1]]}'
