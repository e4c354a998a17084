# expect: VL25 warning
pip install vllm==0.21.0
vllm serve MiniMaxAI/MiniMax-M2.5 -tp 4 --speculative-config '{"method": "eagle3", "model": "thoughtworks/MiniMax-M2.5-Eagle3", "num_speculative_tokens": 3}'
