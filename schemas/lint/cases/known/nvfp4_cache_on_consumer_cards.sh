# On a GeForce RTX 5090.
# expect: VL24 error
pip install vllm==0.28.0
vllm serve org/m --kv-cache-dtype nvfp4
