# Stages run with EAGLE of one layer only.
# expect: SD093 error
pip install sglang==0.5.22
SGLANG_ENABLE_PP_SPEC=1 python3 -m sglang.launch_server --model-path org/m --tp 4 --pp-size 2 --max-running-requests 16 --speculative-algorithm EAGLE3 --speculative-draft-model-path org/d --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
