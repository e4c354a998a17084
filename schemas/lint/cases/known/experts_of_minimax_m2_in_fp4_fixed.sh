# expect: nothing
pip install sglang==0.5.12
python3 -m sglang.launch_server --model-path nvidia/MiniMax-M2.7-NVFP4 --tp-size 8 --trust-remote-code --moe-runner-backend flashinfer_cutlass
