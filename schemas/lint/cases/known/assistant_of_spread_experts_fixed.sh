# expect: nothing
pip install vllm==0.29.0
vllm serve google/gemma-4-26B-A4B-it --tensor-parallel-size 2 \
  --speculative-config '{"method":"mtp","model":"google/gemma-4-26B-A4B-it-assistant","num_speculative_tokens":4}'
