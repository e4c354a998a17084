# expect: nothing
pip install sglang==0.5.9
sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM --max-running-requests 16
