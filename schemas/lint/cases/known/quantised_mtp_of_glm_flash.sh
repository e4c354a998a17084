# expect: SD074 warning
# expect: SD193 warning
# sglang==0.5.18
sglang serve --model-path nvidia/GLM-5.3-Flash-NVFP4 --tp-size 4 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
