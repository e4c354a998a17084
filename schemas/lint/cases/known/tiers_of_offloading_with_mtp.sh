# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.26.0
vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"secondary_tiers": [{"type": "fs", "root_dir": "/kv"}]}}'
