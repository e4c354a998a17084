# expect: SD193 error
# sglang==0.5.16
sglang serve --model-path Qwen/Qwen3-30B-A3B --tp-size 4 --dp-size 4 --enable-dp-attention --enable-dp-lm-head --speculative-algorithm DSPARK --speculative-draft-model-path Qwen3-30B-A3B-DSpark --max-running-requests 32
