# expect: LT09 warning
docker run --gpus all me/sglang:v0.5.9 python3 -m sglang.launch_server --model-path org/m --speculative-algoritm NGRAM
