# expect: SD193 warning
# sglang==0.5.9
sglang serve --model-path Qwen/Qwen3.5-397B-A17B-FP8 --tp-size 8 --ep-size 8 --enable-eplb --mamba-scheduler-strategy extra_buffer --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
