# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.25.1rc1 vllm serve zai-org/GLM-5.2 --tensor-parallel-size 16 --speculative-config '{"method": "dspark", "model": "RedHatAI/GLM-5.2-speculator.dspark", "num_speculative_tokens": 7}'
