# expect: SD193 warning
pip install sglang==0.5.16
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.6 --tp-size 8 --pp-size 2 --dp-size 8 --enable-dp-attention --moe-a2a-backend deepep --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000
