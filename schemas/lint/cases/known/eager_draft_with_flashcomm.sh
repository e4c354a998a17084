# expect: VL24 warning
docker run -e VLLM_ASCEND_ENABLE_FLASHCOMM1=1 quay.io/ascend/vllm-ascend:v0.22.1rc1 vllm serve Qwen/Qwen3-32B --tensor-parallel-size 4 --speculative-config '{"method": "eagle3", "model": "AngelSlim/Qwen3-32B_eagle3", "num_speculative_tokens": 2, "enforce_eager": true}'
