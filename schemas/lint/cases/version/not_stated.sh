# expect: SD086 warning
python3 -m sglang.launch_server --model-path org/m --max-running-requests 16 --cuda-graph-max-bs 16 --speculative-algorithm NGRAM
