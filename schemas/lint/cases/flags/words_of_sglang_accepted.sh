# expect: nothing
sglang serve org/m --context-length 8k
python3 -m sglang.launch_server --model org/m --context-length 8Ki --max-total-tokens 1M
python3 -m sglang.launch_server --port 3000 $MODEL_FLAGS
python3 -m sglang.launch_server --help
