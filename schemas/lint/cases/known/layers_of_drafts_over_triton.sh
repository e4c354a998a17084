# expect: SD193 warning
pip install sglang==0.5.11
sglang serve --model-path XiaomiMiMo/MiMo-V2.5 --tp 4 --attention-backend triton --speculative-algorithm EAGLE --enable-multi-layer-eagle --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
