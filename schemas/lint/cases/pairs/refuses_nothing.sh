# expect: VL43 warning
pip install vllm==0.29.0
vllm serve org/m --port 8100 --kv-cache-dtype fp8 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer", "kv_connector_extra_config": {"enforce_handshake_compat": false}}' &
vllm serve org/m --port 8200 --kv-cache-dtype bfloat16 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer", "kv_connector_extra_config": {"enforce_handshake_compat": false}}'
