# expect: LT08 error
python3 -m sglang.launch_server --model-path org/m --disable-radix-cache yes
