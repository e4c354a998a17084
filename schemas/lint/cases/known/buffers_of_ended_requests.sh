# expect: SD193 warning
pip install sglang==0.5.12
sglang serve --model-path Qwen/Qwen3.6-27B-FP8 --speculative-algorithm EAGLE --mamba-scheduler-strategy extra_buffer --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
