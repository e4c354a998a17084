# expect: nothing
pip install vllm==0.27.1
vllm serve deepseek-ai/DeepSeek-V4-Flash-0731 --tensor-parallel-size 4 --kv-cache-dtype fp8 --block-size 256 \
  --speculative-config '{"method":"dspark","num_speculative_tokens":5}'
