#!/bin/bash
# expect: LT18 info
docker run --gpus all lmsysorg/sglang:v0.99.0 python3 -m sglang.launch_server --model-path org/m \
  --speculative-algorithm NGRAM --max-running-requests 8
