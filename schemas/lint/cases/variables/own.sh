# expect: nothing
export VLLM_PORTS=8000 SGLANG_LAUNCH_NAME=x VLLM_ASCEND_ENABLE_NZ=1
vllm serve org/m --port $VLLM_PORTS
