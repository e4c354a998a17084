# expect: nothing
pip install sglang==0.5.17
sglang serve --model-path org/m --disaggregation-mode prefill --attention-backend fa3 --max-running-requests 16 --speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2 &
sglang serve --model-path org/m --disaggregation-mode decode --attention-backend fa3 --max-running-requests 16 --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
