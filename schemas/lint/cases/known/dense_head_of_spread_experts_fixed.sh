# expect: nothing
pip install vllm==0.29.0
vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tensor-parallel-size 8 --enable-expert-parallel \
  --speculative-config '{"method":"eagle3","model":"nvidia/Qwen3-235B-A22B-Eagle3","num_speculative_tokens":3}'
