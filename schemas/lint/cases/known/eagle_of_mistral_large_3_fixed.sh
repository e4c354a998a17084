# expect: nothing
# sglang==0.5.17
sglang serve --model-path mistralai/Mistral-Large-3-675B-Instruct-2512 --tp-size 8 --speculative-draft-model-path mistralai/Mistral-Large-3-675B-Instruct-2512-Eagle --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 32
