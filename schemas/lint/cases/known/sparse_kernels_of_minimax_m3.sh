# The comment names the GPUs: 8x B200. The others have no graphs, other pages, or the variable.
# expect: SD193 warning
# expect: SD088 warning
pip install sglang==0.5.23
sglang serve --model-path MiniMaxAI/MiniMax-M3 --page-size 128 --speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
sglang serve --model-path MiniMaxAI/MiniMax-M3 --page-size 128 --disable-cuda-graph --speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
sglang serve --model-path MiniMaxAI/MiniMax-M3 --page-size 64 --speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
SGLANG_DISABLE_MSA=1 sglang serve --model-path MiniMaxAI/MiniMax-M3 --page-size 128 --speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft --max-running-requests 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
