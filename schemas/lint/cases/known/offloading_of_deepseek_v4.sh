# expect: VL24 warning
pip install vllm==0.21.0
vllm serve deepseek-ai/DeepSeek-V4-Flash --block-size 256 --kv-cache-dtype fp8 \
  --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"block_size": 256}}'
