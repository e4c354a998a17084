# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.19.1rc1 vllm serve deepseek-ai/DeepSeek-V3.1 --tensor-parallel-size 16 --kv-transfer-config '{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer"}' --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
