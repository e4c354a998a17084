# expect: nothing
# sglang==0.5.11
sglang serve --model-path zai-org/GLM-4.7-FP8 --tp-size 8 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
