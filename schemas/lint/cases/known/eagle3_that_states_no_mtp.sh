# expect: SD193 warning
# sglang==0.5.12
sglang serve --model-path moonshotai/Kimi-K2.5 --tp-size 8 --speculative-draft-model-path nvidia/Kimi-K2.5-Thinking-Eagle3 --speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
