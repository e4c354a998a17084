# The comment names the GPUs: 8x B200. The second one has states in bfloat16.
# expect: SD193 error
pip install sglang==0.5.23
sglang serve --model-path org/hybrid --mamba-ssm-dtype float32 --linear-attn-verify-backend flashinfer --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend trtllm_mha --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
sglang serve --model-path org/hybrid --mamba-ssm-dtype bfloat16 --linear-attn-verify-backend flashinfer --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend trtllm_mha --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
