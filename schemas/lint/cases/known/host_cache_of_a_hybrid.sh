# expect: SD193 error
# expect: SD194 warning
# sglang==0.5.12
sglang serve --model-path Qwen/Qwen3.5-27B --tp-size 2 --enable-hierarchical-cache --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
