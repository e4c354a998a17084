# The word is not compared by the parser. expect: SD195 warning
# sglang==0.5.16
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm EAGLE3 --speculative-draft-model-path org/d --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-draft-attention-backend xyz --max-running-requests 8
