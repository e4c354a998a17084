# expect: SD058 warning
pip install sglang==0.5.4
sglang serve --model-path hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4 --speculative-algorithm STANDALONE --speculative-draft-model-path unsloth/Llama-3.2-1B-Instruct --attention-backend triton --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
