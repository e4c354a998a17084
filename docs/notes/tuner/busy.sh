#!/bin/sh
# Runs sweeps while other processes load every core in bursts, and compares each verdict with a long quiet run.
#
#   docs/notes/tuner/busy.sh truth SPECTUNE OUT              the quiet run: REPEATS (15) repeats of each sweep, on an idle machine
#   docs/notes/tuner/busy.sh busy  SPECTUNE OUT [RUNS [S]]   RUNS (20) runs of each sweep under load, at most S (7200) seconds
#   docs/notes/tuner/busy.sh table OUT                       the verdict of each run next to the truth
#   docs/notes/tuner/busy.sh shards SPECTUNE OUT             two shards of each sweep, the second under load, merged; next to the truth
#
# SPECTUNE is a release build. Run it from the root of the repository. The load ends with the script.
set -eu

sweeps=${SWEEPS:-"demo guided"}

# Writes a copy with more repeats. It is next to the sweep file, since paths of prompts and models are relative to that.
repeated() {
    sed "s/^repeats = .*/repeats = $2/" "sweeps/$1.toml" >"sweeps/.busy-$1.toml"
    grep -q "^repeats = $2" "sweeps/.busy-$1.toml" || sed -i "s/^\[search\]/[search]\nrepeats = $2/" "sweeps/.busy-$1.toml"
}

truth() {
    for sweep in $sweeps; do
        repeated "$sweep" "${REPEATS:-15}"
        "$1" sweep "sweeps/.busy-$sweep.toml" --out "$2/truth-$sweep" >"$2/truth-$sweep.txt" 2>&1
        rm -f "sweeps/.busy-$sweep.toml"
    done
}

# Bursts of work of 0.2 to 3 seconds on each core, with pauses of the same mean length.
load() {
    end=$1
    while [ "$(date +%s)" -lt "$end" ]; do
        for core in $(seq "$(nproc)"); do
            length=$(awk -v seed="$(date +%N)$core" 'BEGIN { srand(seed); printf "%.1f", 0.2 + 2.8 * rand() }')
            timeout "$length" sh -c 'while :; do :; done' &
        done
        wait
        sleep "$(awk -v seed="$(date +%N)" 'BEGIN { srand(seed); printf "%.1f", 3 * rand() }')"
    done
}

busy() {
    binary=$1 out=$2 runs=${3:-20} end=$(($(date +%s) + ${4:-7200}))
    load "$end" &
    loader=$!
    trap 'kill "$loader" 2>/dev/null || true' EXIT INT TERM
    for run in $(seq "$runs"); do
        for sweep in $sweeps; do
            [ "$(date +%s)" -lt "$end" ] || break 2
            timeout $((end - $(date +%s))) "$binary" sweep "sweeps/$sweep.toml" --out "$out/$sweep-$run" \
                >"$out/$sweep-$run.txt" 2>&1 || true
        done
    done
}

# Load, verdict and speed-up of the best configuration with speculation, from a report.json.
verdicts() {
    python3 - "$1/report.json" <<'PYTHON'
import json, sys
for section in json.load(open(sys.argv[1]))["sections"]:
    for race in section["races"]:
        tried = [e for e in race["entries"] if e["configuration"]["shape"]["num_steps"] and e.get("speedup")]
        best = tried[0] if tried else None
        chosen = (race["chosen"] or {}).get("shape")
        name = ",".join(str(v) for v in chosen.values()) if chosen else "-"
        gain = "{median:.3f} ({low:.2f}-{high:.2f})".format(**best["speedup"]) if best else "-"
        print(json.dumps(race["load"]), "|", json.dumps(race.get("verdict")), "|", name, "|", gain)
PYTHON
}

table() {
    for sweep in $sweeps; do
        echo "$sweep, truth:"
        verdicts "$1/truth-$sweep" || echo "  no quiet run yet"
        for folder in "$1/$sweep"-*/; do
            [ -e "$folder/report.json" ] || continue
            echo "$folder"
            verdicts "$folder"
        done
    done
}

# Simulates a slower host: only the second shard runs under load.
shards() {
    binary=$1 out=$2
    for sweep in $sweeps; do
        "$binary" sweep "sweeps/$sweep.toml" --shard 1/2 --out "$out/shard-$sweep-1" >"$out/shard-$sweep-1.txt" 2>&1 || true
        load "$(($(date +%s) + 3600))" &
        loader=$!
        trap 'kill "$loader" 2>/dev/null || true' EXIT INT TERM
        "$binary" sweep "sweeps/$sweep.toml" --shard 2/2 --out "$out/shard-$sweep-2" >"$out/shard-$sweep-2.txt" 2>&1 || true
        kill "$loader" 2>/dev/null || true
        trap - EXIT INT TERM
        "$binary" merge "$out/shard-$sweep-1" "$out/shard-$sweep-2" --out "$out/merged-$sweep" >"$out/merged-$sweep.txt" 2>&1 || true
        "$binary" report "$out/merged-$sweep" >>"$out/merged-$sweep.txt" 2>&1 || true
        echo "$sweep: speed-ups of the merged shards beside those of the quiet run"
        beside "$out/truth-$sweep" "$out/merged-$sweep"
    done
}

# Each configuration's speed-up in two reports, and whether the intervals overlap.
beside() {
    python3 - "$1/report.json" "$2/report.json" <<'PYTHON'
import json, sys
def speedups(path):
    found = {}
    for section in json.load(open(path))["sections"]:
        for race in section["races"]:
            for entry in race["entries"]:
                if entry.get("speedup"):
                    key = json.dumps(race["load"]), ",".join(str(v) for v in entry["configuration"]["shape"].values())
                    found[key] = entry["speedup"]
    return found
quiet, merged = map(speedups, sys.argv[1:])
meet = apart = 0
for key in sorted(quiet.keys() & merged.keys()):
    a, b = quiet[key], merged[key]
    meets = a["low"] <= b["high"] and b["low"] <= a["high"]
    meet, apart = meet + meets, apart + (not meets)
    words = ["{median:.3f} ({low:.2f}-{high:.2f})".format(**each) for each in (a, b)]
    print(*key, *words, "" if meets else "APART", sep=" | ")
print(f"intervals that meet: {meet} of {meet + apart}; only in the quiet run: {len(quiet.keys() - merged.keys())}")
PYTHON
}

[ $# -ge 2 ] || { sed -n '2,10p' "$0"; exit 2; }
mode=$1
shift
case $mode in
    truth) mkdir -p "$2" && truth "$@" ;;
    busy) mkdir -p "$2" && busy "$@" ;;
    table) table "$@" ;;
    shards) mkdir -p "$2" && shards "$@" ;;
    *) sed -n '2,10p' "$0"; exit 2 ;;
esac
