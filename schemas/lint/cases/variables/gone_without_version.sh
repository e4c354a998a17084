# expect: nothing
VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve org/m
