# expect: nothing
pip install vllm==0.25.0
vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 2 --data-parallel-size 4 --max-model-len 4100 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
