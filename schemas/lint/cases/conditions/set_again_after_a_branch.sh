# An assignment after the branch ends what the value said of it.
# expect: SD027 error
# expect: SD023 warning
STEPS=0
USE_MTP=false
if [ "$STEPS" -gt 0 ]; then USE_MTP=true; fi
USE_MTP=true
if $USE_MTP; then
    python3 -m sglang.launch_server --model-path target --max-running-requests 16 --speculative-algorithm EAGLE --speculative-num-steps $STEPS --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
fi
