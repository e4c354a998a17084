# expect: SD108 warning
# expect: SD193 warning
# On 8x MI300X
# sglang==0.5.12
sglang serve --model-path deepseek-ai/DeepSeek-R1-0528 --tp-size 8 --attention-backend aiter --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
