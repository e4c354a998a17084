# expect: nothing
pip install vllm==0.25.1
export VLLM_USE_V2_MODEL_RUNNER=0
vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 7}'
