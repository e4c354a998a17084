# expect: LT16 warning
# expect: SD017 warning
docker run --gpus all lmsysorg/sglang:v0.5.9 --model-path org/m --speculative-num-steps 3
