# expect: VL32 error
pip install vllm==0.28.0
export VLLM_USE_V2_MODEL_RUNNER=1
vllm serve org/m --speculative-config '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
