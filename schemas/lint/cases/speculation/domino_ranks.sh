# expect: SD095 warning
docker run --gpus all lmsysorg/sglang:v0.5.23 sglang serve --model-path Qwen/Qwen3-8B --tp-size 4 --dp-size 4 --enable-dp-attention \
  --enable-dp-lm-head --max-running-requests 16 --speculative-algorithm DFLASH \
  --speculative-draft-model-path Huang2020/Qwen3-8B-Domino-b16 --attention-backend fa3
