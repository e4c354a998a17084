# expect: VL24 warning
pip install vllm==0.23.0 vllm-ascend==0.23.0
vllm serve google/gemma-4-31B-it --tensor-parallel-size 4 --max-num-seqs 8 --max-model-len 8192 \
  --speculative-config '{"model":"RedHatAI/gemma-4-31B-it-speculator.eagle3","method":"eagle3","num_speculative_tokens":3}'
