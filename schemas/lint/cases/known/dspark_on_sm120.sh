# On 8x RTX 5090. expect: SD193 warning
# expect: SD193 warning
# expect: SD194 warning
pip install sglang==0.5.16
sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp 8 --speculative-algorithm DSPARK --max-running-requests 8
