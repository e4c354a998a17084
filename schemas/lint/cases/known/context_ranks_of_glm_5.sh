# On a B200.
# expect: VL25 warning
pip install vllm==0.29.0
vllm serve nvidia/GLM-5.3-NVFP4 -tp 4 --decode-context-parallel-size 4
