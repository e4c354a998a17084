#!/bin/bash
# expect: SD019 error
# expect: NR11 warning
# expect: NR13 error
sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 --max-running-requests 8 \
  --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16
sglang serve --model-path Qwen/Qwen3-14B --speculative-algorithm EAGLE3 --max-running-requests 8 \
  --speculative-draft-model-path AngelSlim/Qwen3-8B_eagle3
sglang serve --model-path zai-org/GLM-4.5 --tp 8 --speculative-algorithm EAGLE3 --max-running-requests 8
