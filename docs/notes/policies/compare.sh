#!/bin/bash
# Simulated loads beside measured ones, on one GPU: the table of ../policies.md.
#   compare.sh SPECTUNE [PART]…      parts: trace, times, policies, rollout, short, long, compare (without any, these), budgets
# Files go to OUT (policy-runs), and each part reads those of the parts before it. MODEL_SHAPE (llama-3.1-8b) with random weights
# on DEVICE (cuda:0). The acceptance is that of the pair in MODELS (models/demo), traced on the CPU. Acceptance is simulated in
# all runs; times are measured.
set -euo pipefail
spectune=$1
shift
[ $# -gt 0 ] || set -- trace times policies rollout short long compare
out=${OUT:-policy-runs}
models=${MODELS:-models/demo}
shapes='1,1,2;3,1,4;5,1,6'
mkdir -p "$out"

bench() { # FLAG…
    "$spectune" bench --load-format dummy --model-shape "${MODEL_SHAPE:-llama-3.1-8b}" --speculative-algorithm EAGLE3 \
        --device "${DEVICE:-cuda:0}" --context-length "${CONTEXT:-4096}" --page-size 16 --seed 1 \
        --max-running-requests 128 --cuda-graph-bs 1 2 4 8 16 24 32 48 64 96 128 "$@"
}

simulate() { # FLAG…
    "$spectune" simulate --trace "$out/trace.jsonl" --times "$out/times.json" "$@"
}

# What the demo pair's draft proposes along its own texts: a few seconds on two cores.
trace() {
    "$spectune" generate --device cpu --model-path "$models/target" --speculative-algorithm EAGLE3 \
        --speculative-draft-model-path "$models/eagle3" --speculative-num-steps 3 --speculative-eagle-topk 1 \
        --speculative-num-draft-tokens 4 --ignore-eos --max-new-tokens 120 --temperature 0.8 --json \
        --prompt 'fn main() {' --prompt 'def read(self' --prompt 'The ' --prompt 'import os' --prompt 'impl<T> Vec<T> {' \
        --prompt 'class ' --prompt 'if __name__' --prompt 'pub fn ' --prompt 'use std::' --prompt 'for i in range(' \
        --trace "$out/trace.jsonl" --trace-limits '5,1,6' > "$out/texts.jsonl"
}

times() {
    bench --times-out "$out/times.json" --shapes "none;$shapes" --batch-size 1,2,4,8,16,24,32,48,64,96,128 \
        --contexts 320,1280 --points 88
}

policies() {
    simulate --rollout 32x4 --prompt-len 256 --median-len 100 --tail 0.8 --max-len 800 --max-running-requests 128 \
        --cuda-graph-bs 1,2,4,8,16,24,32,48,64,96,128 --shapes "$shapes" --contexts 512 --draws 20 \
        --policy fixed,batch,batch-context --policies-out "$out/policies.json"
}

rollout() {
    bench --simulate-acceptance "$out/trace.jsonl" --policies "$out/policies.json" --rollout 32x4 --input-len 256 \
        --median-len 100 --tail 0.8 --max-len 800 --draw 20 --repeats 2 --json > "$out/rollout.jsonl"
}

closed() { # NAME INPUT_LEN OUTPUT_LEN REQUESTS_PER_USER
    bench --simulate-acceptance "$out/trace.jsonl" --shapes 'none;1,1,2;3,1,4' --batch-size 1,8,32,128 --input-len "$2" \
        --median-len "$3" --tail 0 --requests-per-user "$4" --repeats 1 --json > "$out/$1.jsonl"
}

short() { closed short 256 128 2; }

long() { closed long 2048 96 1; }

# Budgets of rows beside whole trees, in one process.
budgets() {
    bench --simulate-acceptance "$out/trace.jsonl" --shapes 'none;1,1,2;2,1,3;3,1,4;2,1,3~2;3,1,4~2.5;5,1,6~3' \
        --batch-size 32,64,128 --input-len 64 --median-len 128 --tail 0 --requests-per-user 4 --repeats 3
}

compare() {
    for runs in rollout short long; do
        [ -s "$out/$runs.jsonl" ] || continue
        echo "== $runs"
        simulate --against "$out/$runs.jsonl"
    done
}

for part in "$@"; do
    begin=$SECONDS
    "$part"
    echo "-- $part: $((SECONDS - begin)) s" >&2
done
