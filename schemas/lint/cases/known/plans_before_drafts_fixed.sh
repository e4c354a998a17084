# expect: nothing
# sglang==0.5.20
SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1 sglang serve --model-path zai-org/GLM-4.6 --tp-size 8 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
