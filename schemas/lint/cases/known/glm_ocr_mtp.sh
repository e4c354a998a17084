# expect: VL24 error
pip install vllm==0.27.1
vllm serve zai-org/GLM-OCR --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
