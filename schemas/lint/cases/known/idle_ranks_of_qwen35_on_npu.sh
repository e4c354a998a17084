# expect: VL25 warning
# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.21.0rc1 vllm serve Qwen/Qwen3.5-27B --data-parallel-size 2 --tensor-parallel-size 2 --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 2}'
