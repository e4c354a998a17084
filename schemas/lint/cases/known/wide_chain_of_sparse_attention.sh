# expect: SD193 warning
# expect: SD193 warning
pip install sglang==0.5.23
sglang serve --model-path Qwen/Qwen3.8-Flash-Next --tp-size 8 --max-running-requests 16 --attention-backend triton --speculative-algorithm NEXTN --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6
