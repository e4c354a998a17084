# expect: VL43 error
pip install vllm==0.29.0
vllm serve org/m --port 8100 --block-size 64 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' &
vllm serve org/m --port 8200 --block-size 16 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'
