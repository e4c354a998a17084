# expect: LT17 error
bash -c 'exec python3 -m sglang.launch_server --model-path org/m --max-running-requests 8' --speculative-algorithm NGRAM
