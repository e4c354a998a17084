# expect: VL25 warning
# expect: VL25 warning
pip install vllm==0.18.0 vllm-ascend==0.18.0
export VLLM_ASCEND_ENABLE_FLASHCOMM1=1
vllm serve /models/Qwen3.5-397B-A17B-w8a8-mtp --tensor-parallel-size 16 --enable-expert-parallel --quantization ascend \
  --speculative-config '{"method":"qwen3_5_mtp","num_speculative_tokens":3}'
