#!/bin/bash
# expect: SD066 warning
vllm serve Qwen/Qwen3-8B --max-model-len 262144
VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve Qwen/Qwen3-8B --max-model-len 262144
sglang serve --model-path Qwen/Qwen3-8B --context-length 262144 --json-model-override-args "$OVERRIDES"
