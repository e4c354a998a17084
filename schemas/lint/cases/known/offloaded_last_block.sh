# expect: VL24 warning
pip install vllm==0.23.0
vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 8 --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}' --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
