# expect: SD194 warning
pip install sglang==0.5.20
python3 -m sglang.launch_server --model-path zai-org/GLM-5.3-Flash --tp-size 8 --ep-size 8 --enable-single-batch-overlap
