# expect: SD193 warning
pip install sglang==0.5.17
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --tp-size 8 --dcp-size 8 --trust-remote-code --enable-hierarchical-cache --hicache-size 100
