# `off` never reaches the engine.
# expect: nothing
KIND="${KIND:-off}"
more=()
[[ "$KIND" == off ]] || more+=(--speculative-algorithm "$KIND" --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4)
python3 -m sglang.launch_server --model-path target --max-running-requests 16 "${more[@]}"
