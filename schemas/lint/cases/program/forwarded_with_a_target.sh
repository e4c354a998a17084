# Flags that name the target are all that an option passes on.
# expect: SD021 warning
# expect: SD021 warning
launch --framework sglang --framework-args "--model-path target --speculative-algorithm EAGLE --speculative-num-steps 3"
FLAGS="--model-path target --speculative-algorithm EAGLE --speculative-num-steps 3"
launch --framework sglang --framework-args "$FLAGS"
