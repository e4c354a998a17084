# expect: NR06 warning
vllm serve target --tensor-parallel-size 2 --max-model-len 4096 -tp 4
