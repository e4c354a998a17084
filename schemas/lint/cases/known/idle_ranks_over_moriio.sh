# On an MI355X.
# expect: VL24 warning
pip install vllm==0.27.0
vllm serve MiniMaxAI/MiniMax-M3-MXFP8 --data-parallel-size 16 --enable-expert-parallel \
  --kv-transfer-config '{"kv_connector": "MoRIIOConnector", "kv_role": "kv_consumer"}'
