# Flags in a here-document that a substitution prints.
# expect: SD021 error
# expect: SD021 error
STEPS=3
FLAGS=$(cat <<EOF
--speculative-algorithm EAGLE
--speculative-num-steps $STEPS
EOF
)
python3 -m sglang.launch_server --model-path target --max-running-requests 16 $FLAGS
sglang serve --model-path target --max-running-requests 16 $(cat <<'EOF' | tr '\n' ' '
--speculative-algorithm EAGLE
--speculative-num-steps 3
EOF
)
