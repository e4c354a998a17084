# On an H100.
# expect: nothing
pip install vllm==0.32.0
vllm serve zai-org/GLM-5.3-Flash -tp 8 --kv-cache-dtype fp8
