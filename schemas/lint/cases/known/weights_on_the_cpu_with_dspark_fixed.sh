# expect: nothing
pip install vllm==0.28.0
vllm serve org/m --tensor-parallel-size 2 --cpu-offload-gb 25 --speculative-config '{"method": "dspark", "num_speculative_tokens": 7}'
