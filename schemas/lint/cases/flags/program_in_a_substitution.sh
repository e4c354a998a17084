# Quotes and brackets in a here-document close nothing around it.
# expect: SD021 error
GPUS=$(python3 - <<'PY'
print("it's (here")
PY
)
python3 -m sglang.launch_server --model-path target --max-running-requests 16 --tp "$GPUS" --speculative-algorithm EAGLE --speculative-num-steps 3
