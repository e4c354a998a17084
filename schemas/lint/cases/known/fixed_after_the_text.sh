# The text is of a day before the version that mended it.
# expect: VL24 warning
# Tried on 2026-09-01.
vllm serve zai-org/GLM-OCR --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
