# The number of API servers takes a word, and none of these flags is another one.
# expect: nothing
vllm serve org/m -asc 4 -tp 2 --max-num-seqs 64
