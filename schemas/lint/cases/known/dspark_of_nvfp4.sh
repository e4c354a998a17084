# expect: SD193 warning
# expect: SD193 warning
# expect: SD194 warning
# sglang==0.5.16
sglang serve --model-path nvidia/DeepSeek-V4-Pro-NVFP4 --tp-size 8 --speculative-algorithm DSPARK --max-running-requests 32
