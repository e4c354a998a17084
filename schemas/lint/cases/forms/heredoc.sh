# expect: SD001 error
cat > start.sh <<'EOF'
python3 -m sglang.launch_server --model-path org/m --speculative-algorithm FOO
EOF
bash start.sh
