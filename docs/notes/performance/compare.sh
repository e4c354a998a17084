#!/bin/bash
# Compares two builds of spectune on one GPU, as in the lab journal (steps/), since GPUs differ by 2 to 3%.
#   compare.sh OLD NEW [SHAPE:BATCH,…]…         for example none:1,8 3,1,4@3:8
# OUTPUT_LEN new tokens (160) after a prompt of 512, MODEL_SHAPE (llama-3.1-8b) with random weights. Each build has a separate
# cache, because the cache stores which kernels are the fastest.
set -uo pipefail
old=$1 new=$2
shift 2
[ $# -gt 0 ] || set -- none:1,8,32,64 3,1,4@3:1,8,32,64 5,8,32@3:1,8,32,64 1,1,2@2:1,8,32,64 7,1,8@3.91:1,8 8,10,60@5:1,8
caches=$(mktemp -d)
trap 'rm -rf "$caches"' EXIT

for which in old new; do
    export SPECTUNE_CACHE=$caches/$which
    for cell in "$@"; do
        echo "== $which ${cell%:*}"
        "${!which}" bench --load-format dummy --model-shape "${MODEL_SHAPE:-llama-3.1-8b}" --speculative-algorithm EAGLE3 \
            --device cuda:0 --context-length 2048 --page-size 16 --max-running-requests 64 --repeats 1 \
            --shapes "${cell%:*}" --batch-size "${cell##*:}" --input-len 512 --output-len "${OUTPUT_LEN:-160}" 2> "$caches/messages" |
            tail -n +2 || cat "$caches/messages" >&2
    done
done
