# expect: nothing
pip install sglang==0.5.23
sglang serve --model-path cyankiwi/Qwen3.8-27B-AWQ-BF16-INT4 --max-running-requests 16 --attention-backend triton --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
