# expect: SD193 warning
pip install sglang==0.5.16
sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp 8 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
