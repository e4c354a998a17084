# expect: SD194 warning
pip install sglang==0.5.17
sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash --tp 4 --speculative-algorithm EAGLE --speculative-num-steps 5 \
  --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --max-running-requests 32
