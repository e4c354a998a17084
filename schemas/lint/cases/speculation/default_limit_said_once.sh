# expect: nothing
sglang serve --model-path org/a --speculative-algorithm EAGLE3 --speculative-draft-model-path org/d --port 1
sglang serve --model-path org/b --speculative-algorithm EAGLE3 --speculative-draft-model-path org/d --port 2
