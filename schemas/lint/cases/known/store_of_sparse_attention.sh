# expect: SD193 warning
# expect: SD194 warning
pip install sglang==0.5.10
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8 --page-size 64 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 64 --enable-hierarchical-cache --hicache-size 100 --hicache-storage-backend mooncake
