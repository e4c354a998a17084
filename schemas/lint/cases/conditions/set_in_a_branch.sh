# What held where a variable was set holds where a condition finds its value.
# expect: nothing
STEPS="${STEPS:-0}"
USE_MTP=false
if [ "$STEPS" -gt 0 ]; then USE_MTP=true; fi
FLAGS=""
if $USE_MTP; then
    FLAGS="--speculative-algorithm EAGLE --speculative-num-steps $STEPS --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
fi
python3 -m sglang.launch_server --model-path target --max-running-requests 16 $FLAGS
