# expect: nothing
pip install sglang==0.5.16
python3 -m sglang.launch_server --model-path nvidia/GLM-5.2-NVFP4 --tp-size 8 --quantization modelopt_fp4 --moe-runner-backend flashinfer_trtllm
