#!/bin/bash
# Tunes a launch of an 8B shape, then starts the launch as it was and as `tune` left it, and measures both with the engine's own
# benchmark: 512 tokens in, 128 out, as many requests at once as the launch is for.
#   measure.sh SPECTUNE REPOSITORY sglang|vllm [LAUNCH_ARGS...]
# Run it in an empty folder, on a GPU with 40 GiB, where the engine is installed. LAUNCH_ARGS are appended to the launch, for
# what an installation needs (an attention backend). MAX_TIME is the time of `tune` (8m), ROUNDS how often each launch is
# started for the benchmark (2). Everything stays in the folder; the last lines are the figures.
set -u
spectune=$1 repository=$2 engine=$3
shift 3
launches=$repository/docs/notes/tuner/launches

main() {
    [ -d shapes ] || bash "$launches/shapes.sh" "$repository"
    sed "\$s|\$| $*|" "$launches/$engine-8b.sh" > before.sh
    cp before.sh after.sh
    "$engine"_tune
    echo "== the change"
    diff before.sh after.sh
    for _ in $(seq "${ROUNDS:-2}"); do
        for launch in before after; do
            serve "$launch" && "$engine"_benchmark >> "$launch.bench" 2>&1
            stop
        done
    done
    for launch in before after; do
        echo "== $launch"
        grep -E "Output token throughput|Mean TPOT|Median TPOT|Accept length|Acceptance length" "$launch.bench"
    done
}

sglang_tune() { tune 32 64; }
vllm_tune() { tune 64 128 --force; }

tune() { # CONCURRENCY REQUESTS [FLAG]
    local seconds=$SECONDS
    "$spectune" tune after.sh --input-len 512 --output-len 128 --requests "$2" --concurrency "$1" --max-time "${MAX_TIME:-8m}" --write \
        --out tune ${3:-} > tune.txt 2> tune.log
    echo "== tune: exit code $?, $((SECONDS - seconds)) s"
    cat tune.txt
}

sglang_benchmark() {
    python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model shapes/target --tokenizer shapes/target \
        --dataset-name random-ids --random-input-len 512 --random-output-len 128 --random-range-ratio 1 \
        --num-prompts 256 --max-concurrency 32
}

vllm_benchmark() {
    vllm bench serve --backend vllm --host 127.0.0.1 --port 8000 --model shapes/target --dataset-name random \
        --random-input-len 512 --random-output-len 128 --ignore-eos --num-prompts 512 --max-concurrency 64
}

serve() { # LAUNCH
    local port=30000
    [ "$engine" = vllm ] && port=8000
    setsid bash "$1.sh" > "$1.log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        curl -sf "http://127.0.0.1:$port/health" > /dev/null && return 0
        kill -0 "$server" 2> /dev/null || break
        sleep 1
    done
    echo "$1 did not start"
    tail -5 "$1.log"
    return 1
}

stop() {
    kill -TERM -- "-$server"
    while pgrep -g "$server" > /dev/null; do sleep 1; done
}

main "$@"
