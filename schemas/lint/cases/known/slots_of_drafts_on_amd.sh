# expect: SD194 warning
# expect: SD194 warning
# On 8x MI355X
# sglang==0.5.13
sglang serve --model-path deepseek-ai/DeepSeek-V4-Pro --tp-size 8 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
