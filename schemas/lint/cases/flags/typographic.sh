# expect: LT15 error
# expect: LT15 error
# expect: LT15 error
# expect: LT15 error
python3 -m sglang.launch_server –-model-path org/m
python3 -m sglang.launch_server -–model-path org/m --tp 2
python3 -m sglang.launch_server --model-path “org/m”
vllm serve org/m —max-model-len 4096
