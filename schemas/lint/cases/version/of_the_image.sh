# expect: SD086 error
docker run --gpus all lmsysorg/sglang:v0.5.23 python3 -m sglang.launch_server --model-path org/m --max-running-requests 16 --cuda-graph-max-bs 16 --speculative-algorithm NGRAM
