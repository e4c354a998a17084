# expect: SD193 error
pip install sglang==0.5.17
export SGLANG_OPT_USE_ONLINE_COMPRESS=1
sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4 --max-running-requests 16 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
