# expect: SD194 warning
# sglang==0.5.12
python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-27B --max-running-requests 16 --disable-radix-cache --speculative-algorithm NGRAM --speculative-num-draft-tokens 8
