# expect: VL24 warning
pip install vllm==0.15.0
vllm serve openai/gpt-oss-120b --speculative-config '{"method":"draft_model","model":"openai/gpt-oss-20b","num_speculative_tokens":3}'
