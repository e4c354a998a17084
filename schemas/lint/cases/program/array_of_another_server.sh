# expect: LT02 error
# The array is for a server of another kind, whose flags look like those of SGLang.
COMMON_ARGS=(
  --model Qwen/Qwen3-8B
  --quantization nvfp4
  --speculative-algorithm MTP
  --speculative-num-steps 3
)
python3 -m smg_grpc_servicer.tokenspeed "${COMMON_ARGS[@]}" --port 30000
