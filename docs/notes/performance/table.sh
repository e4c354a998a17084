#!/bin/bash
# The first figures of performance.md, on one GPU: tokens per second and the share of the floor.
#   table.sh SPECTUNE [PART]…        parts: eight_billion, protocol, one_billion, seventy_billion, invariant, prompts; without any,
#                                    all but protocol
# DEVICE (cuda:0); REPEATS (1) runs of OUTPUT_LEN (511) new tokens after a prompt of INPUT_LEN (512), with random weights. Serving
# under load is part `serving` of ../tuner/measure.sh.
set -uo pipefail
spectune=$1
shift
[ $# -gt 0 ] || set -- eight_billion one_billion seventy_billion invariant prompts

bench() { # MODEL_SHAPE FLAG…
    echo "== $*"
    "$spectune" bench --load-format dummy --model-shape "$1" --device "${DEVICE:-cuda:0}" --context-length 2048 --page-size 16 \
        --repeats "${REPEATS:-1}" --input-len "${INPUT_LEN:-512}" --output-len "${OUTPUT_LEN:-511}" "${@:2}"
}

eight_billion() { # FLAG…
    bench llama-3.1-8b --speculative-algorithm EAGLE3 --max-running-requests 64 --batch-size 1,8,32,64 \
        --shapes 'none;3,1,4@3;5,8,32@3;1,1,2@2' "$@"
    bench llama-3.1-8b --speculative-algorithm EAGLE3 --max-running-requests 64 --batch-size 1,8 --shapes '7,1,8@3.91;8,10,60@5' "$@"
}

# The table by the protocol of SGLang's figures: tokens 128 to 384 of each request, by the difference of two runs, medians of 3 each. The
# time of a run is its tokens after the first (which the prompt yields) divided by its rate.
protocol() {
    local length
    for length in 128 384; do
        OUTPUT_LEN=$length REPEATS=3 eight_billion --json | sed -n "s/^{/{\"output_len\":$length,/p"
    done | awk -F'[:,"]+' '
        function field(name) { for (i = 1; i < NF; i++) if ($i == name) return $(i + 1) }
        {
            match($0, /"shape":"[^"]*"/)
            cell = substr($0, RSTART + 9, RLENGTH - 10) " batch " field("batch_size")
            seconds = field("batch_size") * (field("output_len") - 1) / field("output_tokens_per_s")
            if (field("output_len") == 128) first[cell] = seconds
            else printf "%-20s %9.1f\n", cell, field("batch_size") * 256 / (seconds - first[cell])
        }'
}

one_billion() {
    bench llama-3.2-1b --speculative-algorithm EAGLE3 --max-running-requests 64 --batch-size 1,8 \
        --shapes 'none;1,1,2@2;3,1,4@3;5,8,32@3'
}

# Needs 140 GB: the weights are 133,451 MiB, more than the default share of an H200's memory.
seventy_billion() {
    OUTPUT_LEN=61 bench llama-2-70b --speculative-algorithm EAGLE --mem-fraction-static 0.97 --max-running-requests 1 \
        --batch-size 1 --shapes 'none;1,1,2@2;3,1,4@3;5,8,32@3'
}

invariant() {
    bench llama-3.1-8b --speculative-algorithm EAGLE3 --max-running-requests 64 --batch-size 1,8 --shapes 'none;3,1,4@3' \
        --batch-invariant
}

# Only the column of prompts matters here.
prompts() {
    INPUT_LEN=1024 OUTPUT_LEN=16 REPEATS=3 bench llama-3.1-8b --max-running-requests 8 --batch-size 8 --shapes none
}

for part in "$@"; do "$part"; done
