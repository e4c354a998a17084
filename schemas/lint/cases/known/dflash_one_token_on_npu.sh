# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.21.0rc1 vllm serve Qwen/Qwen3.5-27B --tensor-parallel-size 2 --speculative-config '{"method": "dflash", "model": "Qwen3.5-27B-DFlash", "num_speculative_tokens": 1}'
