#!/bin/bash
# A sweep of a small pair on a real SGLang, guided or as the whole grid. The models are small, so that the engine's own processes
# are most of a round: the case in which costs are hardest to predict.
#   sglang-small.sh SPECTUNE REPOSITORY MODELS guided|grid
# MODELS has small/{target,eagle3}. Run it in an empty folder on a GPU of its own.
set -u
spectune=$1 repository=$2 models=$3 strategy=$4

cat > "$strategy.toml" <<TOML
[system]
kind = "sglang"
command = ["python3", "-m", "sglang.launch_server"]
extra_args = ["--attention-backend", "fa3", "--sampling-backend", "pytorch", "--disable-prefill-cuda-graph",
    "--mem-fraction-static", "0.3", "--max-running-requests", "32"]
start_timeout_s = 300
[models]
target = "$models/small/target"
draft = "$models/small/eagle3"
algorithm = "EAGLE3"
dtype = "bfloat16"
[engine]
context_length = 1024
[workload]
prompts = "$repository/sweeps/demo-prompts.jsonl"
requests = 32
output_length = 96
[batch]
sizes = [1, 8, 32]
[space]
num_steps = [1, 3, 5]
topk = [1, 4]
num_draft_tokens = [8, 16]
[search]
strategy = "$strategy"
repeats = 3
[objective]
metric = "throughput"
TOML
[ "$strategy" = guided ] && sed -i 's/^repeats/candidates = 1\nrepeats/' "$strategy.toml"
seconds=$SECONDS
"$spectune" sweep "$strategy.toml" --out "$strategy" > "$strategy.txt" 2> "$strategy.log"
echo "== $strategy: exit code $?, $((SECONDS - seconds)) s"
cat "$strategy.txt"
