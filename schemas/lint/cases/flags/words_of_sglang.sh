# expect: LT09 error
# expect: LT08 error
# expect: LT13 error
# expect: LT13 error
# expect: LT19 error
python3 -m sglang.launch_server --model-path org/m -tp 2
python3 -m sglang.launch_server --model-path org/m --enable-torch-compile=true
python3 -m sglang.launch_server --model-path org/m --context-length abc
python3 -m sglang.launch_server --model-path org/m --context-length 1e5
python3 -m sglang.launch_server --tp 2 --port 3000
