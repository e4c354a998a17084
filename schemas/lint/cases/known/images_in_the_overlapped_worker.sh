# expect: SD193 warning
pip install sglang==0.5.5
export SGLANG_ENABLE_SPEC_V2=1
sglang serve --model-path Qwen/Qwen2.5-VL-7B-Instruct --context-length 8192 --speculative-algorithm EAGLE3 --speculative-draft-model-path org/vl-eagle3 --attention-backend triton --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
