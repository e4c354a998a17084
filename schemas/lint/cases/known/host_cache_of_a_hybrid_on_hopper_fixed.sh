# expect: SD193 warning
# On 2x H100
# sglang==0.5.14
sglang serve --model-path Qwen/Qwen3.6-27B --tp-size 2 --enable-hierarchical-cache --mamba-scheduler-strategy extra_buffer --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
