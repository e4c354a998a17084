# expect: SD193 warning
# expect: SD193 warning
# expect: SD194 warning
# sglang==0.5.10
sglang serve --model-path zai-org/GLM-5.1-FP8 --tp-size 8 --dp-size 8 --enable-dp-attention --disaggregation-mode decode --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
