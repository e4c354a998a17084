# expect: VL24 warning
docker run quay.io/ascend/vllm-ascend:v0.19.1rc1 vllm serve org/target \
  --speculative-config '{"method": "dflash", "model": "org/draft", "num_speculative_tokens": 7}'
