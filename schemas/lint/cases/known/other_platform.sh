# expect: nothing
pip install vllm==0.23.0
export ASCEND_RT_VISIBLE_DEVICES=0
vllm serve nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
