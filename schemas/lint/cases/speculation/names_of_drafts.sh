# Kinds of drafts are no methods, and not every engine runs them.
# expect: SD001 error
# expect: VL11 error
# expect: SD018 warning
# expect: SD018 warning
pip install sglang==0.5.23 vllm==0.33.0
sglang serve --model-path target --speculative-algorithm DFLASH2 --speculative-draft-model-path draft --max-running-requests 16
vllm serve target --speculative-config '{"method": "p-eagle", "model": "draft", "num_speculative_tokens": 5}'
vllm serve target --speculative-config '{"method": "dflash", "model": "org/Qwen3-8B-Domino-b16", "num_speculative_tokens": 15}'
sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path org/Qwen3-8B-P-EAGLE --max-running-requests 16 \
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
