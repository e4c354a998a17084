# expect: SD193 warning
pip install sglang==0.5.19
python3 -m sglang.launch_server --model-path zai-org/GLM-5.3 --tp-size 8 --dcp-size 8 --attention-backend trtllm_mla --enable-hierarchical-cache --hicache-size 100
