# MI355X
# expect: SD193 warning
# expect: SD193 warning
# sglang==0.5.19
python3 -m sglang.launch_server --model-path zai-org/GLM-5.2-FP8 --tp 8 --dsa-decode-backend aiter --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
