# expect: NR06 warning
vllm serve org/m --tensor-parallel-size 2 --nnodes 2 --master-addr node0 --master-addr 29500
