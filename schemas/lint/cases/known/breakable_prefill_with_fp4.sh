# expect: SD074 warning
# expect: SD193 warning
pip install sglang==0.5.14
sglang serve --model-path nvidia/GLM-5.2-NVFP4 --tp 4 --quantization modelopt_fp4 --moe-runner-backend flashinfer_trtllm --cuda-graph-backend-prefill breakable --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
