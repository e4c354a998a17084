# expect: VL43 error
pip install vllm==0.12.0
vllm serve org/m --port 8100 -tp 4 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' &
vllm serve org/m --port 8200 -tp 2 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'
