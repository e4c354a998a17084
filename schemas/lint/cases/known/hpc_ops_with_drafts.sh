# expect: SD202 error
pip install sglang==0.5.20
sglang serve --model-path Qwen/Qwen3.5-27B --max-running-requests 16 --attention-backend hpc_ops --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
