# expect: VL45 error
# expect: VL24 warning
pip install vllm==0.24.0
vllm serve org/m --speculative-config '{"method": "dflash", "model": "Qwen3.6-27B-DFlash", "num_speculative_tokens": 7}'
