# expect: nothing
pip install sglang==0.5.17
python3 -m sglang.launch_server --model-path zai-org/GLM-5.2-FP8 --tp-size 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000
