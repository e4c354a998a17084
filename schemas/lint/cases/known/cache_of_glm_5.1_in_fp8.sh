# expect: SD194 warning
pip install sglang==0.5.10
python3 -m sglang.launch_server --model-path zai-org/GLM-5.1-FP8 --tp-size 8 --kv-cache-dtype fp8_e4m3
