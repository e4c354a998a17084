# expect: nothing
docker run -e VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE=1 quay.io/ascend/vllm-ascend:v0.24.0rc1 vllm serve stepfun-ai/Step-3.5-Flash --quantization ascend --tensor-parallel-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
