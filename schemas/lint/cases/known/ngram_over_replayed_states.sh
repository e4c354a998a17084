#!/bin/bash
# expect: SD193 error
docker run --gpus all lmsysorg/sglang:v0.5.19 python3 -m sglang.launch_server --model-path Qwen/Qwen3.8-27B \
  --speculative-algorithm NGRAM --speculative-num-draft-tokens 8 --enable-linear-replayssm-spec --disable-radix-cache
