# expect: VL24 warning
pip install vllm==0.9.2
vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 2048 --kv-cache-dtype fp8 --speculative-config '{"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 5}'
