#!/bin/bash
# A shell continues no line before CR LF. expect: LT04 warning
python3 -m sglang.launch_server \
  --model-path org/m \
  --speculative-algorithm NGRAM --max-running-requests 8
