# The script has flags of its own.
# expect: nothing
python3 scripts/run_model.py train --num-nodes 8 --sglang-path /opt/sglang --sglang-max-running-requests 64
