# On an Ascend 910B.
# expect: nothing
pip install vllm==0.26.0
vllm serve org/m -tp 4 --compilation-config '{"cudagraph_mode": "PIECEWISE"}' \
  --speculative-config '{"method": "draft_model", "model": "org/d", "num_speculative_tokens": 5}'
