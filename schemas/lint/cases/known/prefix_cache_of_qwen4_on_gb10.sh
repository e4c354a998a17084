# On a DGX Spark (GB10).
# expect: VL24 warning
# expect: VL25 warning
# expect: VL48 warning
pip install vllm==0.28.0
vllm serve RadixArk/Qwen3.8-Flash-Next-NVFP4 --enable-prefix-caching --max-num-seqs 8 \
  --speculative-config '{"method":"mtp","num_speculative_tokens":2}'
