# Other faults of this version stay.
# expect: SD193 warning
# expect: SD194 warning
pip install sglang==0.5.16
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V4-Pro-DSpark --tp-size 8 --max-running-requests 32 --speculative-algorithm DSPARK --moe-runner-backend flashinfer_mxfp4
