# expect: SD194 warning
pip install sglang==0.5.20
sglang serve --model-path Qwen/Qwen3.5-35B-A3B-GPTQ-Int4 --quantization moe_wna16 --max-running-requests 16 --attention-backend triton --speculative-algorithm NEXTN --speculative-draft-model-quantization unquant --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
