# expect: VL24 warning
pip install vllm==0.26.0
vllm serve org/model-GPTQ-Int4 --quantization moe_wna16 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
