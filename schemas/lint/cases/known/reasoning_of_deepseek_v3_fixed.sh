# expect: nothing
pip install sglang==0.5.12
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3-0324 --tp-size 8
