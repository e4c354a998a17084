# A probability of more than one is that of one. expect: LT13 warning
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm NGRAM --speculative-accept-threshold-single 1.5 --max-running-requests 8
