# expect: nothing
N=${N:-0}
STEPS=$N
OPTIONS=""
if [ "$N" -gt 0 ]; then
  OPTIONS="--speculative-algorithm EAGLE --speculative-num-steps $STEPS --speculative-eagle-topk 1"
fi
sglang serve --model-path target --max-running-requests 8 $OPTIONS
