# What drafts of blocks refuse or ignore, one launch each.
# expect: SD146 warning
# expect: SD146 warning
# expect: SD144 error
# expect: SD147 warning
# expect: SD140 error
pip install sglang==0.5.23
B="sglang serve --model-path Qwen/Qwen3-8B --max-running-requests 16"
$B --speculative-algorithm DSPARK --speculative-draft-model-path deepseek-ai/dspark_qwen3_8b_block7 --speculative-dspark-sps-table-path table.json
SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path Qwen/Qwen3-8B --max-running-requests 16 --speculative-algorithm DSPARK --speculative-draft-model-path deepseek-ai/dspark_qwen3_8b_block7
$B --speculative-algorithm DSPARK --speculative-draft-model-path deepseek-ai/dspark_qwen3_8b_block7 --speculative-num-draft-tokens 7 --speculative-dspark-block-size 7
$B --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 --speculative-num-draft-tokens 8
$B --speculative-algorithm DFLASH --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 --speculative-dflash-block-size 16 --speculative-draft-window-size 8
