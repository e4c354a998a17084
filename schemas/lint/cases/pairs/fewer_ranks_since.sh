# expect: nothing
pip install vllm==0.25.1
vllm serve org/m --port 8100 -tp 4 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' &
vllm serve org/m --port 8200 -tp 2 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'
