# expect: SD108 warning
# expect: SD194 warning
pip install sglang==0.5.9
python3 -m sglang.launch_server --model-path org/m --tp 8 --attention-backend aiter --max-running-requests 16 --speculative-algorithm EAGLE --speculative-draft-model-path org/d --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8
