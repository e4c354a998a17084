# expect: SD081 warning
# expect: SD193 warning
# expect: SD193 warning
pip install sglang==0.5.4
sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM --max-running-requests 16 --enable-hierarchical-cache
