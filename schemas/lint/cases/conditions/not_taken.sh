# With the values in the text the branch does not run; what is wrong in it is a warning.
# expect: SD021 warning
SPEC=${SPEC:-0}
more=()
if [ "$SPEC" = 1 ]; then
  more+=(--speculative-algorithm EAGLE --speculative-num-steps 3)
fi
python3 -m sglang.launch_server --model-path target --max-running-requests 16 "${more[@]}"
