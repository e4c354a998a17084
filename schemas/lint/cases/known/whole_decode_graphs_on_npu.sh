# expect: VL24 warning
docker run quay.io/ascend/vllm-ascend:v0.18.0rc1 vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 --quantization ascend --no-enable-prefix-caching --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}' --speculative-config '{"num_speculative_tokens": 3, "method": "deepseek_mtp"}'
