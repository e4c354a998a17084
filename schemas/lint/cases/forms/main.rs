// expect: SD001 warning
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm FOO
