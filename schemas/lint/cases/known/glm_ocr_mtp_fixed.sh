# expect: nothing
pip install vllm==0.30.0
vllm serve zai-org/GLM-OCR --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
