# expect: VL24 warning
pip install vllm==0.22.1 vllm-ascend==0.22.1rc1
vllm serve zai-org/GLM-4.6V --tensor-parallel-size 8 --max-model-len 131072 \
  --speculative-config '{"method":"draft_model","model":"zai-org/GLM-4.6V-Flash","num_speculative_tokens":3}'
