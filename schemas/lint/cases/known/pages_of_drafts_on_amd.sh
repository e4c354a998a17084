# expect: SD193 warning
# On 8x MI300X
# sglang==0.5.10
sglang serve --model-path zai-org/GLM-4.6 --tp-size 8 --page-size 16 --attention-backend triton --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
