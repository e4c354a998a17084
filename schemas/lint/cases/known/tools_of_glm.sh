# expect: VL25 warning
pip install vllm==0.13.0
vllm serve zai-org/GLM-4.6 -tp 8 --enable-auto-tool-choice --tool-call-parser glm45 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
