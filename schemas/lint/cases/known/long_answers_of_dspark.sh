# expect: SD194 warning
# sglang==0.5.17
sglang serve --model-path Qwen/Qwen3.8-27B --mamba-ssm-dtype float32 --speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Qwen3.8-27B-DSpark --max-running-requests 32
