# expect: nothing
python3 -m sglang.launch_server --model-path org/m --dtype <dtype> --tp 2
