# expect: SD193 warning
# sglang==0.5.20
sglang serve --model-path LiquidAI/LFM2.5-8B-A1B --speculative-algorithm DSPARK --speculative-draft-model-path LFM2.5-8B-A1B-DSpark --max-running-requests 32
