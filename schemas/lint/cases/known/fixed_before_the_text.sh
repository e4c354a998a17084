# expect: nothing
# Tried on 2026-11-01.
vllm serve zai-org/GLM-OCR --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
