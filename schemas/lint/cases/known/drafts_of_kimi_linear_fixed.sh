# expect: nothing
pip install sglang==0.5.16
python3 -m sglang.launch_server --model-path moonshotai/Kimi-Linear-48B-A3B-Instruct --tp-size 4 --trust-remote-code --max-running-requests 64 --speculative-algorithm NGRAM --speculative-num-draft-tokens 8
