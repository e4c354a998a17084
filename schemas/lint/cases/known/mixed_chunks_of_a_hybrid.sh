# expect: SD194 warning
# sglang==0.5.20
sglang serve --model-path Qwen/Qwen3.8-27B --tp-size 2 --enable-mixed-chunk --speculative-algorithm DFLASH --speculative-draft-model-path incoai/Qwen3.8-27B-DFlash2 --max-running-requests 16
