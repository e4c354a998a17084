# The first rank decides from 0.5.19 on; what is left is another fault.
# expect: SD194 warning
pip install sglang==0.5.19
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp-size 8 --max-running-requests 64 \
  --speculative-algorithm DSPARK
