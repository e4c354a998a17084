# expect: LT04 error
# expect: SD017 warning
python3 -m sglang.launch_server --model-path org/m
  --speculative-num-steps 3
