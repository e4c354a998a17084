# expect: SD090 warning
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 8
   --sglang-speculative-algorithm EAGLE
   --sglang-speculative-num-steps 3
   --sglang-speculative-eagle-topk 1
   --sglang-speculative-num-draft-tokens 4
)
