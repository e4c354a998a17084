# expect: VL25 warning
pip install vllm==0.27.1 vllm-ascend==0.27.1rc1
vllm serve /models/DeepSeek-V4-Flash --data-parallel-size 4 --max-model-len 1048576 --enable-expert-parallel \
  --speculative-config '{"method": "dspark", "num_speculative_tokens": 5}' \
  --kv-transfer-config '{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer"}'
