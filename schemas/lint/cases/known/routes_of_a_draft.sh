# expect: SD194 warning
# sglang==0.5.14
sglang serve --model-path zai-org/GLM-4.6 --tp-size 8 --enable-return-routed-experts --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
