# expect: SD194 warning
pip install sglang==0.5.18
python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --kv-cache-dtype nvfp4 --prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha --enable-hierarchical-cache --hicache-size 100
