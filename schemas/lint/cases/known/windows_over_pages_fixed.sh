# expect: SD193 warning
# sglang==0.5.13
sglang serve --model-path openai/gpt-oss-120b --tp-size 4 --attention-backend fa3 --page-size 16 --speculative-draft-model-path lmsys/EAGLE3-gpt-oss-120b-bf16 --speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
