# expect: SD193 error
pip install sglang==0.5.14
sglang serve --model-path zai-org/GLM-5.2-FP8 --tp 8 --dsa-decode-backend tilelang --speculative-algorithm EAGLE \
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 64
