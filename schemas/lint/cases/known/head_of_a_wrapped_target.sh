# The second launch leaves the choice of the runner to vllm.
# expect: VL25 warning
pip install vllm==0.25.0
VLLM_USE_V2_MODEL_RUNNER=1 vllm serve Qwen/Qwen2.5-VL-7B-Instruct --speculative-config '{"method": "eagle", "model": "org/draft", "num_speculative_tokens": 3}'
vllm serve Qwen/Qwen2.5-VL-7B-Instruct --speculative-config '{"method": "eagle", "model": "org/draft", "num_speculative_tokens": 3}'
