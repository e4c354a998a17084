# expect: SD146 warning
# expect: SD193 warning
# expect: SD193 warning
# expect: SD193 warning
# expect: SD194 warning
pip install sglang==0.5.16
# 4x RTX PRO 6000
export SGLANG_RAGGED_VERIFY_MODE=compact
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp-size 4 --max-running-requests 64 --speculative-algorithm DSPARK
