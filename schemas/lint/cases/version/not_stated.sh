# An older version has every flag, so it is only information.
# expect: nothing
python3 -m sglang.launch_server --model-path org/m --max-running-requests 16 --cuda-graph-max-bs 16 --speculative-algorithm NGRAM
