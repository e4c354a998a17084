# expect: VL24 warning
pip install vllm==0.29.0
vllm serve org/m --max-model-len 393216 --hf-overrides '{"max_position_embeddings": 393216}' --speculative-config '{"method": "dflash", "model": "org/head", "num_speculative_tokens": 7}'
