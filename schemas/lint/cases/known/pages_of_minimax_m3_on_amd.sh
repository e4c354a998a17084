# expect: VL24 warning
# On 8x MI355X
pip install vllm==0.27.1
vllm serve MiniMaxAI/MiniMax-M3-MXFP8 --tensor-parallel-size 8 --attention-backend ROCM_AITER_FA --speculative-config '{"method": "eagle3", "model": "Inferact/MiniMax-M3-EAGLE3", "num_speculative_tokens": 3}'
