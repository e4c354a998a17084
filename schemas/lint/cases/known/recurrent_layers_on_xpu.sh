# expect: VL24 warning
docker run vllm/vllm-openai-xpu:v0.26.0 Qwen/Qwen3.6-27B --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
