# expect: SD193 warning
pip install sglang==0.5.12
sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash --tp 4 --speculative-algorithm EAGLE --enable-hierarchical-cache --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
