# expect: VL03 warning
# expect: VL24 warning
pip install vllm==0.11.2
vllm serve Qwen/Qwen2.5-VL-7B-Instruct --speculative-config '{"method": "eagle3", "model": "Rayzl/qwen2.5-vl-7b-eagle3-sgl", "num_speculative_tokens": 3}'
