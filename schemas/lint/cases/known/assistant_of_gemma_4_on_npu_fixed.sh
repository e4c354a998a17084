# expect: nothing
pip install vllm==0.27.1 vllm-ascend==0.27.1rc1
vllm serve google/gemma-4-12B-it --max-model-len 8192 --enforce-eager --max-num-seqs 4 \
  --speculative-config '{"model": "google/gemma-4-12B-it-assistant", "num_speculative_tokens": 1}'
