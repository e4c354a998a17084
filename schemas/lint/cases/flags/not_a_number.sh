# expect: LT13 error
vllm serve org/m --tensor-parallel-size two
