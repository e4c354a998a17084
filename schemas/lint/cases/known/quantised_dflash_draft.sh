# expect: VL24 warning
# expect: VL25 warning
pip install vllm==0.28.0
vllm serve unsloth/Qwen3.8-27B-NVFP4 --max-model-len 65536 \
  --speculative-config '{"method":"dflash","model":"syvai/Qwen3.8-27B-DFlash2-W4A16","num_speculative_tokens":7}'
