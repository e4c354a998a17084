#!/bin/bash
# The measurements of docs/notes/tuner.md on one GPU.
#   measure.sh SPECTUNE MODELS WORKLOADS OUT PART...
# MODELS has small/{target,eagle3}, WORKLOADS has mt_bench.jsonl; PART is one of guided, grid, random, anneal, none, policy,
# between, dummy, serving; random, anneal, policy and between need the output of guided.
set -u
spectune=$1 models=$2 workloads=$3 out=$4
shift 4
mkdir -p "$out"

models_toml() {
    printf '[models]\ntarget = "%s/small/target"\ndraft = "%s/small/eagle3"\nalgorithm = "EAGLE3"\ndtype = "bfloat16"\n' "$models" "$models"
    printf '[engine]\ndevice = "cuda:0"\ncontext_length = 1024\n'
}

space_toml() {
    printf '[space]\nnum_steps = [1, 2, 3, 4, 5, 6, 7]\ntopk = [1, 2, 4, 8]\nnum_draft_tokens = [4, 8, 16, 32]\n'
}

run() { # NAME
    echo "== $1"
    /usr/bin/env time -f "%e s as a whole" "$spectune" sweep "$out/$1.toml" --out "$out/$1" > "$out/$1.txt" 2> "$out/$1.log" ||
        tail -5 "$out/$1.log"
    tail -2 "$out/$1.log"
}

# The strategies on one space; random search and annealing with as many trials as guided search took.
guided() { strategy guided; }
grid() { strategy grid; }
random() { strategy random; }
anneal() { strategy anneal; }

strategy() {
    {
        models_toml
        printf '[workload]\nprompts = "%s/mt_bench.jsonl"\nrequests = 16\noutput_length = 96\nmax_prompt_tokens = 600\n' "$workloads"
        printf '[batch]\nsizes = [1, 8, 32]\n'
        space_toml
        printf '[search]\nstrategy = "%s"\nrepeats = 3\n' "$1"
        case $1 in random | anneal) printf 'trials = %d\n' "$(($(wc -l < "$out/guided/journal.jsonl") - 1))" ;; esac
    } > "$out/$1.toml"
    run "$1"
}

# Random prompts, which the draft predicts poorly, and a large batch.
none() {
    {
        models_toml
        printf '[workload]\nrandom = { input_length = 64 }\nrequests = 256\noutput_length = 64\n'
        printf '[batch]\nsizes = [256]\n'
        space_toml
        printf '[search]\nstrategy = "guided"\nrepeats = 5\n'
    } > "$out/none.toml"
    run none
}

# An open loop: the table of the guided sweep against each of its shapes.
policy() {
    {
        models_toml
        printf 'max_running_requests = 32\n'
        printf '[workload]\nprompts = "%s/mt_bench.jsonl"\nrequests = 320\noutput_length = 96\nmax_prompt_tokens = 600\n' "$workloads"
        printf '[arrivals]\nrates = [100.0, 400.0, 800.0]\n'
        printf '[space]\ntables = ["%s/guided/tuned.toml"]\nshapes = [%s]\n' "$out" \
            "$(awk '/^num_steps/{s=$3} /^topk/{k=$3} /^num_draft_tokens/{printf "%s\"%s,%s,%s\"", n++ ? ", " : "", s, k, $3}' "$out/guided/tuned.toml")"
        printf '[objective]\nmetric = "latency"\n'
        printf '[search]\nstrategy = "grid"\nrepeats = 5\n'
    } > "$out/policy.toml"
    run policy
}

# The same in closed loops, at batch sizes that the guided sweep measured and at some in between.
between() {
    {
        models_toml
        printf '[workload]\nprompts = "%s/mt_bench.jsonl"\nrequests = 64\noutput_length = 96\nmax_prompt_tokens = 600\n' "$workloads"
        printf '[batch]\nsizes = [1, 2, 4, 6, 8, 12, 16, 20, 32]\n'
        grep -A2 '^\[space\]' "$out/policy.toml"
        printf '[search]\nstrategy = "grid"\nrepeats = 5\n'
    } > "$out/between.toml"
    run between
}

# Random weights of a published shape with published acceptance.
published_toml() {
    printf '[models]\nmodel_shape = "llama-3.1-8b"\nalgorithm = "EAGLE3"\ndtype = "bfloat16"\n'
    printf 'acceptance = { file = "%s/specbundle-acceptance.json", target = "Llama-3.1-8B-Instruct", draft = "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge" }\n' "$workloads"
    printf '[engine]\ndevice = "cuda:0"\ncontext_length = 2048\n'
}

dummy() {
    {
        published_toml
        printf '[workload]\nrandom = { input_length = 512 }\nrequests = 16\noutput_length = 128\n'
        printf '[batch]\nsizes = [1, 8, 16]\n'
        printf '[space]\nshapes = ["3,1,4", "5,1,6", "5,3,6", "7,1,8", "7,4,8"]\n'
        printf '[search]\nstrategy = "grid"\nrepeats = 3\n'
    } > "$out/dummy.toml"
    run dummy
}

# An open loop of requests of 201 to 1,500 prompt tokens and 53 to 400 new ones, more than can be served, and a closed loop of the
# same requests with the same number running.
serving() {
    {
        published_toml
        printf 'max_running_requests = 32\n'
        printf '[workload]\nrandom = { input_length = 1500, ratio = 0.1342 }\nrequests = 96\noutput_length = 400\n'
        printf '[batch]\nsizes = [32]\n'
        printf '[arrivals]\nrates = [60.0]\n'
        printf '[space]\nshapes = ["3,1,4"]\n'
        printf '[search]\nstrategy = "grid"\nrepeats = 1\n'
    } > "$out/serving.toml"
    run serving
}

for part in "$@"; do "$part"; done
