# expect: nothing
python3 -m sglang.launch_server --model-path org/m --speculative-num-steps 3 $SPECULATION
