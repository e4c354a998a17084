# expect: SD194 warning
# expect: SD194 warning
# sglang==0.5.9
sglang serve --model-path deepseek-ai/DeepSeek-R1-0528 --tp-size 8 --enable-hierarchical-cache --hicache-storage-backend mooncake --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
