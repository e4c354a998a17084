# expect: SD193 warning
# sglang==0.5.17
sglang serve --model-path stepfun-ai/Step-3.5-Flash --tp-size 8 --dp-size 8 --enable-dp-attention --enable-multi-layer-eagle --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
