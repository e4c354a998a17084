# expect: VL36 error
# expect: VL36 error
# expect: VL36 error
# expect: VL06 error
# expect: VL25 info
pip install vllm==0.29.0
vllm serve org/m --use-replayssm -pp 2 --speculative-config '{"method": "dspark", "model": "org/d", "num_speculative_tokens": 7}'
vllm serve org/m --use-replayssm --enable-mamba-cache-stochastic-rounding --mamba-ssm-cache-dtype float16 \
  --speculative-config '{"method": "dspark", "model": "org/d", "num_speculative_tokens": 7}'
vllm serve org/m --speculative-config '{"method": "mtp", "num_speculative_tokens": 1, "enable_adaptive_verification": true}'
