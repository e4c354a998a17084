#!/bin/bash
# Policies by batch and by context, simulated and measured on one GPU: the loads of ../policies.md with tables by context.
#   tail.sh SPECTUNE [PART]…      parts: trace, times, rollout, falling, compare; without any, all
# rollout is one of 256 prompts with a long tail; falling is a closed loop of 64 whose contexts grow from 512 to 3,512 tokens,
# with a trace whose drafts are never accepted above 2,048 (falling.py). Both run without speculation, with each fixed
# tree, with the table by batch and with that by batch and context. Files go to OUT (tail-runs), and each part reads those of the
# parts before it. MODEL_SHAPE (llama-3.1-8b) with random weights on DEVICE (cuda:0); REPEATS (1). The acceptance is that of the
# pair in MODELS (models/demo), traced on the CPU. Acceptance is simulated in all runs; times are measured.
set -euo pipefail
spectune=$1
shift
[ $# -gt 0 ] || set -- trace times rollout falling compare
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-tail-runs}
models=${MODELS:-models/demo}
shapes='1,1,2;3,1,4'
captures='1 2 4 8 16 32 64 128 192 256'
rollout_load='--rollout 256x1 --median-len 300 --tail 1.0 --max-len 3000'
falling_load='--median-len 3000 --tail 0 --max-len 3000 --keep-contexts'
mkdir -p "$out"

bench() { # FLAG…
    # shellcheck disable=SC2086 # a list of sizes
    "$spectune" bench --load-format dummy --model-shape "${MODEL_SHAPE:-llama-3.1-8b}" --speculative-algorithm EAGLE3 \
        --device "${DEVICE:-cuda:0}" --context-length "${CONTEXT:-4096}" --page-size 16 --seed 1 \
        --max-running-requests 256 --cuda-graph-bs $captures "$@"
}

simulate() { # TRACE FLAG…
    "$spectune" simulate --trace "$out/$1.jsonl" --times "$out/times.json" "${@:2}"
}

# What the demo pair's draft proposes along its own texts, and the same with acceptance that falls: a minute on two cores.
trace() {
    "$spectune" generate --device cpu --model-path "$models/target" --speculative-algorithm EAGLE3 \
        --speculative-draft-model-path "$models/eagle3" --speculative-num-steps 3 --speculative-eagle-topk 1 \
        --speculative-num-draft-tokens 4 --ignore-eos --max-new-tokens 120 --temperature 0.8 --json \
        --prompt 'fn main() {' --prompt 'def read(self' --prompt 'The ' --prompt 'import os' --prompt 'impl<T> Vec<T> {' \
        --prompt 'class ' --prompt 'if __name__' --prompt 'pub fn ' --prompt 'use std::' --prompt 'for i in range(' \
        --trace "$out/trace.jsonl" --trace-limits '5,1,6' > "$out/texts.jsonl"
    python3 "$here/falling.py" "$out/trace.jsonl" 512 3000 2048 0 > "$out/falling-trace.jsonl"
}

times() {
    bench --times-out "$out/times.json" --shapes "none;$shapes" --batch-size "${captures// /,}" --contexts 320,1536,3072 --points 80
}

policies() { # NAME TRACE CONTEXTS FLAG…
    simulate "$2" --max-running-requests 256 --cuda-graph-bs "${captures// /,}" --shapes "$shapes" --contexts "$3" \
        --policy fixed,batch,batch-context --policies-out "$out/$1-policies.json" "${@:4}" | tee "$out/$1-simulated.txt"
}

measure() { # NAME TRACE FLAG…
    bench --simulate-acceptance "$out/$2.jsonl" --policies "$out/$1-policies.json" --repeats "${REPEATS:-1}" --json "${@:3}" \
        > "$out/$1.jsonl"
}

rollout() {
    # shellcheck disable=SC2086 # flags
    policies rollout trace 512,1024,2048 $rollout_load --prompt-len 256 --draws 20
    # shellcheck disable=SC2086 # flags
    measure rollout trace $rollout_load --input-len 256 --draw 20
}

falling() {
    # shellcheck disable=SC2086 # flags
    policies falling falling-trace 2048 $falling_load --prompt-len 512 --batch-size 64 --requests 64 --draws 1
    # shellcheck disable=SC2086 # flags
    measure falling falling-trace $falling_load --input-len 512 --batch-size 64 --requests-per-user 1
}

compare() {
    for runs in rollout:trace falling:falling-trace; do
        [ -s "$out/${runs%:*}.jsonl" ] || continue
        echo "== ${runs%:*}"
        simulate "${runs#*:}" --against "$out/${runs%:*}.jsonl"
    done
}

for part in "$@"; do
    begin=$SECONDS
    "$part"
    echo "-- $part: $((SECONDS - begin)) s" >&2
done
