# expect: LT04 error
python3 -m sglang.launch_server --model-path org/m \ 
  --tp 2
