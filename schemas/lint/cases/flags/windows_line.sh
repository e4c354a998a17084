# expect: LT04 warning
python3 -m sglang.launch_server --model-path org/m --dtype float16
