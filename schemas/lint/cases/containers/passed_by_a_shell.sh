# expect: nothing
bash -c 'exec python3 -m sglang.launch_server --model-path org/m --max-running-requests 8 "$@"' server --speculative-algorithm NGRAM
