# What the shell exports does not reach the container.
# expect: nothing
export CUDA_VISIBLE_DEVICES=0
docker run --gpus all lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model-path org/m --tp-size 2
docker run --gpus all lmsysorg/sglang:v0.5.9 bash -c "python3 -m sglang.launch_server --model-path org/m --tp-size 2"
