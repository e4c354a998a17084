# On this side of the branch the number is the default: the finding stays.
# expect: SD023 warning
# expect: SD027 error
STEPS=${STEPS:-0}
if [ "$STEPS" -gt 3 ]; then
  echo "a long chain"
else
  python3 -m sglang.launch_server --model-path target --speculative-algorithm EAGLE --speculative-num-steps $STEPS --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16
fi
