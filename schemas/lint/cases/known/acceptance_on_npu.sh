# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.22.1rc1 vllm serve Qwen/Qwen3.6-35B-A3B \
  --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 2}'
