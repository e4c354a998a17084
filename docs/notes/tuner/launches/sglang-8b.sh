#!/bin/bash
# SGLang with the shape of an 8B model, random weights and simulated acceptance: times are real, accept lengths are not.
# The tree is a large one for a batch of 32 requests.
export SGLANG_SIMULATE_ACC_LEN=1.9
export SGLANG_SIMULATE_ACC_METHOD=match-expected
python3 -m sglang.launch_server \
    --model-path shapes/target --load-format dummy \
    --speculative-algorithm EAGLE3 --speculative-draft-model-path shapes/eagle3 \
    --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32 \
    --context-length 2048 --max-running-requests 32 --mem-fraction-static 0.8 \
    --host 0.0.0.0 --port 30000
