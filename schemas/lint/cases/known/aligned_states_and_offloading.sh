# expect: VL24 warning
pip install vllm==0.21.0
vllm serve Qwen/Qwen3.5-27B --enable-prefix-caching --kv-offloading-size 32
