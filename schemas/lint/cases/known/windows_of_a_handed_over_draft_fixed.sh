# expect: nothing
# sglang==0.5.19
sglang serve --model-path deepseek-ai/DeepSeek-V4-Pro --tp-size 8 --disaggregation-mode prefill --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
