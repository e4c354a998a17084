# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
pip install vllm==0.31.0
vllm serve org/m --max-num-batched-tokens 64 --max-num-seqs 128
vllm serve org/m -tp 2 --enable-eplb
vllm serve org/m --enable-dbo -ep -dp 2
