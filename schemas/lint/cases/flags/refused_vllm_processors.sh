# expect: VL36 error
pip install vllm==0.18.0
vllm serve org/m --logits-processors my.module:Processor --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
