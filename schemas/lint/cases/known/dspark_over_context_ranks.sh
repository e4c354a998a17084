# expect: SD193 warning
sglang serve --model-path moonshotai/Kimi-K3 --tp-size 8 --dcp-size 8 --speculative-algorithm DSPARK \
  --speculative-draft-model-path org/draft --speculative-dspark-block-size 7 --max-running-requests 16
