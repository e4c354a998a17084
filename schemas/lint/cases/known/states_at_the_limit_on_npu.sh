# On an Ascend 910B.
# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.22.1
vllm serve Qwen/Qwen3.6-27B --mamba-cache-mode align --max-model-len 32768 \
  --speculative-config '{"method": "qwen3_5_mtp", "num_speculative_tokens": 1}'
