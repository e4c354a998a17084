# For 8x B200. expect: SD196 warning
sglang serve --model-path org/target --attention-backend fa3 --max-running-requests 16 --speculative-algorithm NGRAM
