# expect: SD193 warning
pip install sglang==0.5.8
sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM --max-running-requests 16
