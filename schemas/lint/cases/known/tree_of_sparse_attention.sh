# expect: SD104 error
# expect: SD193 warning
pip install sglang==0.5.23
sglang serve --model-path Qwen/Qwen3.8-Flash-Next --tp-size 8 --max-running-requests 16 --attention-backend triton --speculative-algorithm NEXTN --speculative-num-steps 2 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4
