# Nothing is said of the sizes in the names.
# expect: SD019 error
# expect: SD019 error
pip install sglang==0.5.20
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE --max-running-requests 16 \
  --speculative-draft-model-path Qwen/Qwen3-8B --speculative-num-steps 3 --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4 --attention-backend fa3
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --max-running-requests 16 \
  --speculative-draft-model-path Qwen/Qwen3-0.6B --speculative-num-steps 3 --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4 --attention-backend fa3
