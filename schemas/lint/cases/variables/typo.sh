# expect: VL35 warning
pip install vllm==0.33.0
export VLLM_USE_V2_MODEL_RUNER=1
vllm serve org/m
