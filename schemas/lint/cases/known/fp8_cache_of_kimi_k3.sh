# expect: SD193 warning
# expect: SD193 warning
# expect: SD194 warning
# On 32x H200
# sglang==0.5.17
sglang serve --model-path moonshotai/Kimi-K3 --tp-size 32 --kv-cache-dtype fp8_e4m3 --speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark --max-running-requests 32
