# On a DGX Spark (GB10).
# expect: VL24 warning
# expect: VL24 warning
# expect: VL24 warning
pip install vllm==0.23.0
vllm serve google/gemma-4-31B-it --max-num-batched-tokens 16384 --max-num-seqs 16 \
  --compilation-config '{"cudagraph_mode":"PIECEWISE"}' \
  --speculative-config '{"method":"dflash","model":"z-lab/gemma-4-31B-it-DFlash","num_speculative_tokens":15}'
