# Runner V2 offloads no weights before 0.28.0.
# expect: VL24 warning
pip install vllm==0.26.0
vllm serve org/m --tensor-parallel-size 2 --cpu-offload-gb 25 --speculative-config '{"method": "dspark", "num_speculative_tokens": 7}'
