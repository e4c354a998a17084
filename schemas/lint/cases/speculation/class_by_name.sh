# Names of variants and of heads tell their classes, at most as a warning.
# expect: NR02 warning
# sglang==0.5.12
sglang serve --model-path org/Kimi-K2-Instruct-AWQ --max-running-requests 16 --attention-backend trtllm_mla --speculative-algorithm EAGLE3 --speculative-draft-model-path org/kimi-k2-eagle3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
