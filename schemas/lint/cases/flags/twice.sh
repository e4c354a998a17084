#!/bin/bash
# expect: NR06 warning
# expect: SD027 error
sglang serve --model-path org/m --schedule-policy fcfs --speculative-algorithm EAGLE --max-running-requests 8 \
  --speculative-draft-model-path org/d --speculative-num-steps 3 --speculative-eagle-topk 0 \
  --speculative-num-draft-tokens 4 --schedule-policy lpm
