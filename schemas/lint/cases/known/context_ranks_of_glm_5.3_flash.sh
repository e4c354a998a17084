# expect: SD194 warning
docker run --gpus all lmsysorg/sglang:glm-5.3-flash python3 -m sglang.launch_server --model-path zai-org/GLM-5.3-Flash --tp-size 8 --dcp-size 8
