# Other numbers of tokens and other ports are no difference, and neither is the name of a method.
# expect: nothing
pip install vllm==0.29.0
vllm serve org/m --port 8100 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' &
vllm serve org/m --port 8200 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
