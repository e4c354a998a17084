# Libraries and modes that DSPARK refuses under DP attention.
# expect: SD197 error
# expect: SD197 error
pip install sglang==0.5.23
SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path target --speculative-algorithm DSPARK --tp 8 --dp-size 8 \
  --speculative-draft-model-path draft --enable-dp-attention --enable-dp-lm-head --moe-a2a-backend megamoe \
  --speculative-moe-a2a-backend deepep --speculative-dspark-sps-table-path table.json --max-running-requests 64
