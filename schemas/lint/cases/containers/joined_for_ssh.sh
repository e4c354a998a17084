# ssh joins its words with blanks, and the other shell takes the first quotes for none: JSON needs two kinds.
# expect: VL02 error
# expect: LT14 error
ssh -p 22 "$HOST" vllm serve target --speculative-config "'{\"method\":\"eagle3\",\"model\":\"draft\"}'"
ssh "$HOST" vllm serve target --speculative-config '{"method":"ngram","num_speculative_tokens":3}'
