# expect: nothing
pip install sglang==0.5.9
python3 -m sglang.launch_server --model-path MiniMaxAI/MiniMax-M2.5 --tp-size 4 --trust-remote-code --attention-backend fa3
