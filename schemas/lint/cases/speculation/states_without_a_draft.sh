# States are captured without a draft: the algorithm names the layers' convention alone.
# expect: nothing
pip install sglang==0.5.23
sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 --enable-return-aux-hidden-states
sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH --enable-return-aux-hidden-states --return-aux-hidden-state-layer-ids 1 9 17
