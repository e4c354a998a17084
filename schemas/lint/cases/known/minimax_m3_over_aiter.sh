# expect: SD193 warning
# expect: SD108 warning
sglang serve --model-path amd/MiniMax-M3-MXFP4 --tp 4 --attention-backend aiter --max-running-requests 16 \
  --speculative-algorithm EAGLE3 --speculative-draft-model-path Inferact/MiniMax-M3-EAGLE3 \
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
