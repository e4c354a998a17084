# expect: LT09 error
python3 -m sglang.launch_server --model-path org/m --speculative-algoritm NGRAM
