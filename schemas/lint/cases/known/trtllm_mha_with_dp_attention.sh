# expect: SD193 warning
# On 8x B200
# sglang==0.5.9
sglang serve --model-path openai/gpt-oss-120b --tp-size 8 --dp-size 8 --enable-dp-attention --attention-backend trtllm_mha --speculative-draft-model-path lmsys/EAGLE3-gpt-oss-120b-bf16 --speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
