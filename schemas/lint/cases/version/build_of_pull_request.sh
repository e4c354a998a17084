#!/bin/bash
# A build of a pull request may have flags that no release has. expect: nothing
pip install sglang==0.5.6.post2.dev8005+pr.12345.g39d5bd57a --index-url https://sgl-project.github.io/whl/pr/
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm EAGLE --speculative-num-steps 3 \
  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32 --enable-multitoken
