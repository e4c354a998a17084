# expect: SD194 warning
# sglang==0.5.9
sglang serve --model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8 --enable-nsa-prefill-context-parallel --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
