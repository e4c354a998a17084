# expect: SD193 warning
# expect: SD108 warning
pip install sglang==0.5.17
sglang serve --model-path Qwen/Qwen3.5-9B --device xpu --max-running-requests 16 --speculative-algorithm EAGLE \
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
