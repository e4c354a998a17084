# expect: VL24 warning
docker run quay.io/ascend/vllm-ascend:v0.19.1rc1 vllm serve zai-org/GLM-5 --tensor-parallel-size 8 --speculative-config '{"num_speculative_tokens": 3, "method": "suffix"}'
