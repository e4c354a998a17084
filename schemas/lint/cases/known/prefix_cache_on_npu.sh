# expect: VL24 warning
# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.19.1rc1 vllm serve Qwen/Qwen3.5-35B-A3B -tp 4 --enable-prefix-caching --speculative-config '{"num_speculative_tokens": 1, "method":"mtp"}'
