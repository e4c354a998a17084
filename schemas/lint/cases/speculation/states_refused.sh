# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
# expect: SD202 error
pip install sglang==0.5.23
sglang serve --model-path Qwen/Qwen3-8B --return-aux-hidden-state-layer-ids 1 9 17
sglang serve --model-path Qwen/Qwen3-8B --enable-return-aux-hidden-states
sglang serve --model-path Qwen/Qwen3-8B --enable-return-aux-hidden-states --speculative-algorithm NGRAM
sglang serve --model-path Qwen/Qwen3-8B --enable-return-aux-hidden-states --speculative-algorithm DFLASH
sglang serve --model-path Qwen/Qwen3-8B --enable-return-aux-hidden-states --speculative-algorithm EAGLE3 --speculative-draft-model-path Tengyunw/qwen3_8b_eagle3
sglang serve --model-path Qwen/Qwen3-8B --enable-return-aux-hidden-states --speculative-algorithm EAGLE3 --pp-size 2
