# expect: LT09 warning
python3 -m sglang.launch_server --model-path org/m --quite-another-thing 3
