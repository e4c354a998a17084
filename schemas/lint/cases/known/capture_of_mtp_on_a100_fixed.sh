# On an NVIDIA H100.
# expect: nothing
pip install vllm==0.19.0
vllm serve Qwen/Qwen3.5-35B-A3B-GPTQ-Int4 --speculative-config '{"method":"qwen3_next_mtp","num_speculative_tokens":2}'
