# On 8x MI355X. expect: VL24 warning
pip install vllm==0.27.1
vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --attention-backend ROCM_AITER_MLA
