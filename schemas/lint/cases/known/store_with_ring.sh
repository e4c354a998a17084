# expect: VL24 error
# expect: VL25 warning
# expect: VL48 warning
pip install vllm==0.28.0
vllm serve Qwen/Qwen3.8-Flash-Next-FP8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' \
  --kv-transfer-config '{"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}'
