# One flag came and the others went between the versions before and after this one.
# vllm==0.8.4
# expect: nothing
vllm serve org/m --data-parallel-size 2 --speculative-model org/d --num-speculative-tokens 5 --max-num-seqs 8
