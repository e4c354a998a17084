# What the variable asked for is what the engine does.
# expect: nothing
# vllm==0.22.0
VLLM_USE_V1=1 vllm serve target
