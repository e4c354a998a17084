# The engine takes the last of two values, and so do rules.
# expect: NR06 warning
pip install vllm==0.28.0
vllm serve org/m --max-num-seqs 8 --max-cudagraph-capture-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' \
  --max-num-seqs 2
