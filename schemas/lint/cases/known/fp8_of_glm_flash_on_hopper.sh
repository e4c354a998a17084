# On an H100.
# expect: VL24 error
pip install vllm==0.30.0
vllm serve zai-org/GLM-5.3-Flash -tp 8 --kv-cache-dtype fp8
