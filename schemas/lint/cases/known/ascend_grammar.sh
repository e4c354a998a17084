# A row about a backend of Ascend is for launches on Ascend.
# expect: SD193 info
pip install sglang==0.5.9
python3 -m sglang.launch_server --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2 --attention-backend ascend --disable-radix-cache --max-running-requests 40
