# expect: LT13 error
# expect: LT13 error
vllm serve org/m -tp 0 --port 80 --gpu-memory-utilization 0
