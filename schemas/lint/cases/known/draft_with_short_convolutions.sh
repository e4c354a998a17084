# expect: VL24 warning
pip install vllm==0.33.0
vllm serve LiquidAI/LFM2.5-1.2B-Instruct \
  --speculative-config '{"method":"draft_model","model":"LiquidAI/LFM2.5-350M","num_speculative_tokens":3}'
