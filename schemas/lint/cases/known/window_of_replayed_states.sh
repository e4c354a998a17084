#!/bin/bash
# expect: SD193 warning
docker run --gpus all lmsysorg/sglang:v0.5.19 python3 -m sglang.launch_server --model-path org/linear-attention \
  --speculative-algorithm EAGLE --speculative-num-steps 11 --speculative-eagle-topk 1 --speculative-num-draft-tokens 12 \
  --max-running-requests 16 --attention-backend fa3 --enable-linear-replayssm-spec --disable-radix-cache
