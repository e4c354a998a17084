# expect: nothing
pip install vllm==0.33.0
VLLM_USE_V2_MODEL_RUNNER=1 vllm serve zai-org/GLM-4.7 --tensor-parallel-size 8 \
  --speculative-config '{"method":"mtp","num_speculative_tokens":3,"num_speculative_tokens_per_batch_size":[[1,32,3],[33,256,0]]}'
