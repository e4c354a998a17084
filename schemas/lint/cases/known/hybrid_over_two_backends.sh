# expect: SD193 warning
# expect: SD193 error
# sglang==0.5.12
sglang serve --model-path Qwen/Qwen3-Next-80B-A3B-Instruct --tp-size 4 --prefill-attention-backend fa3 --decode-attention-backend flashinfer --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
