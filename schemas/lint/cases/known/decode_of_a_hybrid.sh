# expect: SD193 warning
pip install sglang==0.5.10
python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-35B-A3B --tp 4 --max-running-requests 16 --disaggregation-mode decode \
  --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
