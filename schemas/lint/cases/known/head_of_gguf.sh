# expect: SD193 warning
pip install sglang==0.5.23
sglang serve --model-path org/target-GGUF --tp-size 2 --speculative-algorithm DFLASH --speculative-draft-model-path org/draft --max-running-requests 16 --attention-backend fa3
sglang serve --model-path org/target-GGUF --speculative-algorithm DFLASH --speculative-draft-model-path org/draft --max-running-requests 16 --attention-backend fa3
sglang serve --model-path org/target --tp-size 2 --speculative-algorithm DFLASH --speculative-draft-model-path org/draft --max-running-requests 16 --attention-backend fa3
