# expect: LT16 error
docker run --gpus all vllm/vllm-openai:v0.17.1 vllm serve org/m --port 80
