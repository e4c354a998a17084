# expect: VL24 warning
pip install vllm==0.26.0 vllm-ascend==0.26.0rc1
vllm serve Qwen/Qwen3.6-27B --tensor-parallel-size 4 --max-model-len 32768 \
  --speculative-config '{"method":"dspark","model":"RedHatAI/Qwen3.6-27B-speculator.dspark","num_speculative_tokens":7}'
