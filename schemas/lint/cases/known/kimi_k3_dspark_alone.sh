# expect: SD193 warning
# expect: SD193 warning
# sglang==0.5.17
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --tp 8 --speculative-algorithm DSPARK --speculative-draft-model-path moonshotai/Kimi-K3-DSpark --max-running-requests 16
