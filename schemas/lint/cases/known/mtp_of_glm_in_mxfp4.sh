# expect: VL25 warning
pip install vllm==0.17.1
vllm serve amd/GLM-4.7-MXFP4 -tp 4 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
