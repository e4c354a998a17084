# expect: nothing
pip install vllm==0.23.0 vllm-ascend==0.23.0
vllm serve Qwen/Qwen3-32B --tensor-parallel-size 8 --max-model-len 32768 \
  --speculative-config '{"method":"draft_model","model":"Qwen/Qwen3-0.6B","num_speculative_tokens":3}'
