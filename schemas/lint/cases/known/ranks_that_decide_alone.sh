# expect: SD193 warning
pip install sglang==0.5.23
SGLANG_SPEC_TP_SYNC=off python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size 2 --max-running-requests 64 \
  --speculative-algorithm DSPARK --speculative-draft-model-path deepseek-ai/dspark_qwen3_8b_block7
