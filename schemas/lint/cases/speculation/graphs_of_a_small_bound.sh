# A bound that is neither that of a full batch nor its number of requests is a choice.
# expect: nothing
pip install vllm==0.28.0
vllm serve org/m --max-num-seqs 64 --max-cudagraph-capture-size 32 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
