# `read` takes a here-document whole, and fails at its end.
# expect: SD021 error
read -r -d '' FLAGS <<'EOF' || true
--speculative-algorithm EAGLE
--speculative-num-steps 3
EOF
python3 -m sglang.launch_server --model-path target --max-running-requests 16 $FLAGS
