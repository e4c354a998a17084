# expect: nothing
docker run -e VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE=1 quay.io/ascend/vllm-ascend:releases-v0.18.0-a3 vllm serve org/m --quantization ascend --tensor-parallel-size 8 --speculative-config '{"model": "/models/eagle3", "method": "eagle3", "num_speculative_tokens": 1}'
