# expect: VL24 warning
pip install vllm==0.29.0
vllm serve deepseek-ai/DeepSeek-V4.1-Flash --tensor-parallel-size 8 --enable-expert-parallel --enable-eplb --kv-cache-dtype fp8 \
  --block-size 256 --speculative-config '{"method":"dspark","num_speculative_tokens":5}'
