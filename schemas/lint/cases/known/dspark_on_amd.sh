# On 8x MI350X. expect: SD193 warning
pip install sglang==0.5.17
sglang serve --model-path org/target --tp 8 --attention-backend triton --speculative-algorithm DSPARK \
  --speculative-draft-model-path org/draft --max-running-requests 16
