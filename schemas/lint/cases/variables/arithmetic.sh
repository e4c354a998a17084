# expect: VL36 error
# expect: VL36 error
pip install vllm==0.31.0
SEQUENCES=128
vllm serve org/m --max-num-seqs $((SEQUENCES * 2)) --max-num-batched-tokens $((SEQUENCES + 64))
vllm serve org/m --max-num-seqs "$(( ${SEQUENCES} * 2 ))" --max-num-batched-tokens $((OTHER * 2))
vllm serve org/m --max-num-seqs=$((2 * SEQUENCES)) --max-num-batched-tokens=$((10 % 4 + 62))
