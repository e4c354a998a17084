# expect: nothing
# sglang==0.5.21
sglang serve --model-path Qwen/Qwen3-8B --disable-overlap-schedule --speculative-algorithm DSPARK --speculative-draft-model-path deepseek-ai/dspark_qwen3_8b_block7 --max-running-requests 32
