# expect: SD193 error
pip install sglang==0.5.18
export SGLANG_MEMORY_SAVER_CUDA_GRAPH=1
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --enable-memory-saver --cuda-graph-backend-prefill breakable
