# expect: SD194 warning
sglang serve --model-path google/gemma-4-31B-it --max-running-requests 8 --speculative-algorithm EAGLE \
  --speculative-draft-model-path google/gemma-4-31B-it-assistant \
  --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6
