# On an RTX 5080, which has no fa3: the help names triton. expect: SD088 warning
sglang serve --model-path target --speculative-algorithm EAGLE --disable-cuda-graph --max-running-requests 16 \
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
