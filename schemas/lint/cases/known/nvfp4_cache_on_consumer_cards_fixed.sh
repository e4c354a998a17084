# On a GeForce RTX 5090.
# expect: nothing
pip install vllm==0.32.0
vllm serve org/m --kv-cache-dtype nvfp4
