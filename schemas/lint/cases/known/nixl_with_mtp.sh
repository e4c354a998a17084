# expect: VL25 warning
# vllm==0.23.0
vllm serve zai-org/GLM-4.6 -tp 8 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}' --speculative-config '{"method":"mtp","num_speculative_tokens":1}'
