# expect: VL43 warning
pip install vllm==0.25.1
vllm serve org/m --port 8100 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' &
vllm serve org/m --port 8200 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' --speculative-config '{"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}'
