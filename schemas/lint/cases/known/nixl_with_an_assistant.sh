# expect: VL25 warning
# vllm==0.28.0
vllm serve google/gemma-4-26B-A4B-it -tp 2 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}' --speculative-config '{"method":"mtp","model":"google/gemma-4-27b-it-assistant","num_speculative_tokens":3}'
