# Each of these tests excludes the default.
# expect: nothing
STEPS=${STEPS:-0}
TREE=(--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16)
if (( STEPS > 0 )); then
  python3 -m sglang.launch_server --model-path a --speculative-algorithm EAGLE --speculative-num-steps $STEPS "${TREE[@]}"
fi
[[ $STEPS -ge 1 && -n "$MODE" ]] && python3 -m sglang.launch_server --model-path b --speculative-algorithm EAGLE --speculative-num-steps $STEPS "${TREE[@]}"
case "$STEPS" in
  0) echo "no speculation" ;;
  *) python3 -m sglang.launch_server --model-path c --speculative-algorithm EAGLE --speculative-num-steps $STEPS "${TREE[@]}" ;;
esac
test "$STEPS" -lt 1 || python3 -m sglang.launch_server --model-path d --speculative-algorithm EAGLE --speculative-num-steps $STEPS "${TREE[@]}"
if [ "x$STEPS" = x0 ]; then echo off; elif true; then
  python3 -m sglang.launch_server --model-path e --speculative-algorithm EAGLE --speculative-num-steps $STEPS "${TREE[@]}"
fi
