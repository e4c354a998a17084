# expect: nothing
pip install sglang==0.5.13
python3 -m sglang.launch_server --model-path zai-org/GLM-5.1-FP8 --tp-size 8 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 64
