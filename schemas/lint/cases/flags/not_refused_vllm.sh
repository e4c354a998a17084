# expect: nothing
# What is unknown, off or set elsewhere is not refused.
pip install vllm==0.31.0
vllm serve org/m --max-num-batched-tokens "$TOKENS" --max-num-seqs 128
vllm serve org/m -tp 2 --enable-eplb $EXTRA
vllm serve org/m -tp 2 --enable-eplb --no-enable-eplb
vllm serve org/m --enable-dbo --all2all-backend deepep_low_latency -ep -dp 2
vllm serve org/m --no-enable-chunked-prefill --max-num-batched-tokens 8192 --max-model-len 8192
vllm serve org/m --nnodes 2 --node-rank "$RANK" -tp 8 -pp 2
