# A target without linear attention.
# expect: nothing
pip install vllm==0.26.0 vllm-ascend==0.26.0rc1
vllm serve Qwen/Qwen3-8B --max-model-len 32768 \
  --speculative-config '{"method":"dspark","model":"deepseek-ai/dspark_qwen3_8b_block7","num_speculative_tokens":7}'
