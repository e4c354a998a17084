# expect: SD194 warning
pip install sglang==0.5.9
python3 -m sglang.launch_server --model-path MiniMaxAI/MiniMax-M2.5 --tp-size 4 --trust-remote-code --attention-backend fa3 --kv-cache-dtype fp8_e4m3
