# expect: VL25 warning
pip install vllm==0.27.1
vllm serve nvidia/DeepSeek-V4-Flash-NVFP4 --tensor-parallel-size 4 --kv-cache-dtype fp8 --block-size 256 \
  --speculative-config '{"method":"dspark","num_speculative_tokens":5}'
