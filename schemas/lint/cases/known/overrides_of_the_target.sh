#!/bin/bash
# expect: VL25 warning
vllm serve org/long-mtp --max-model-len 1000000 --hf-overrides '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}' \
  --speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'
