# expect: LT05 error
python3 -m sglang.launch_server --model-path org/m --dtype
