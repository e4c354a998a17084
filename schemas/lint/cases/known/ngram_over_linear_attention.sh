# Two faults, one after the other, on every model with linear attention.
# expect: SD193 error
# sglang==0.5.9
python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-27B --max-running-requests 16 --disable-radix-cache --speculative-algorithm NGRAM --speculative-num-draft-tokens 8
