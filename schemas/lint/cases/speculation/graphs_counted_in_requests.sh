# expect: VL44 warning
pip install vllm==0.28.0
vllm serve org/m --max-num-seqs 8 --max-cudagraph-capture-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
