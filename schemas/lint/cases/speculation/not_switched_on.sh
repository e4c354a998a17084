# expect: SD017 warning
python3 -m sglang.launch_server --model-path org/m --speculative-draft-model-path org/d --speculative-num-steps 3
