# Nothing is said of the draft's heads, its length or its vocabulary: it is not loaded.
# expect: SD009 warning
pip install sglang==0.5.23
python3 -m sglang.launch_server --model-path Qwen/Qwen2.5-72B-Instruct --tp 4 --speculative-algorithm NGRAM \
  --speculative-draft-model-path Qwen/Qwen2.5-0.5B-Instruct --speculative-num-draft-tokens 16 \
  --max-running-requests 16 --attention-backend fa3
