# expect: SD194 warning
pip install sglang==0.5.17
sglang serve --model-path thinkingmachines/Inkling --tp 8 --speculative-algorithm DFLASH --speculative-num-draft-tokens 8 \
  --speculative-draft-model-path draft --max-running-requests 32
