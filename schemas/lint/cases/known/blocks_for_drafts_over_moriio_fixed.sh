# expect: nothing
# On 8x MI355X
pip install vllm==0.32.0
vllm serve Qwen/Qwen3-30B-A3B --kv-transfer-config '{"kv_connector": "MoRIIOConnector", "kv_role": "kv_producer"}' --speculative-config '{"method": "eagle3", "model": "Qwen3-30B-A3B-EAGLE3", "num_speculative_tokens": 3}'
