# expect: SD194 warning
# sglang==0.5.14
sglang serve --model-path Qwen/Qwen3.5-27B --tp-size 2 --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3.5-27B-DFlash --max-running-requests 32
