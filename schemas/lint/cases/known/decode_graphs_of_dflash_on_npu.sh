# expect: VL24 warning
# expect: VL25 warning
docker run quay.io/ascend/vllm-ascend:v0.19.1rc1 vllm serve Qwen/Qwen3-8B --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}' --speculative-config '{"method": "dflash", "model": "z-lab/Qwen3-8B-DFlash-b16", "num_speculative_tokens": 7}'
