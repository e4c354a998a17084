# expect: SD193 warning
# expect: SD088 warning
pip install sglang==0.5.9
sglang serve --model-path XiaomiMiMo/MiMo-V2-Flash --tp 8 --enable-multi-layer-eagle --disable-cuda-graph --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
