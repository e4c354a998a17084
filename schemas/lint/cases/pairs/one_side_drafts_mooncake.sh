# expect: VL43 warning
pip install vllm==0.33.0
vllm serve org/m --port 8100 --kv-transfer-config '{"kv_connector": "MooncakeConnector", "kv_role": "kv_producer"}' --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' &
vllm serve org/m --port 8200 --kv-transfer-config '{"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer"}'
