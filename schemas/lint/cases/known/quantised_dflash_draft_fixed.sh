# expect: nothing
pip install vllm==0.28.0
vllm serve Qwen/Qwen3-8B-FP8 --max-model-len 32768 \
  --speculative-config '{"method":"dflash","model":"z-lab/Qwen3-8B-DFlash-b16","num_speculative_tokens":7}'
