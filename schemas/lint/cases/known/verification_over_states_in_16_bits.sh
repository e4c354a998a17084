# expect: SD193 warning
# H200
pip install sglang==0.5.19
sglang serve --model-path Qwen/Qwen3.8-27B --mamba-ssm-dtype bfloat16 --linear-attn-prefill-backend flashinfer --max-running-requests 16 --attention-backend triton --speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
