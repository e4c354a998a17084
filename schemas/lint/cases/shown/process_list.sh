# expect: SD001 warning
root 4321 12.3 python3 -m sglang.launch_server --model-path org/m --speculative-algorithm FOO
