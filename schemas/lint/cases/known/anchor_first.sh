#!/bin/bash
# expect: SD194 warning
sglang serve --model-path Qwen/Qwen3-4B --speculative-algorithm DFLASH --max-running-requests 16 \
  --speculative-draft-model-path deepseek-ai/dflash_qwen3_4b_block7
