#!/bin/bash
# expect: LT13 error
# expect: LT13 error
vllm serve org/m --gpu-memory-utilization 92 --max-model-len 32,768
