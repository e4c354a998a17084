//! A script for one host: one shard at a time on each visible GPU.

use engine::DeviceChoice;

use super::{JobParts, quote};

/// The script. It determines the number of shards when it runs, unless the user gives it.
pub fn script(parts: &JobParts) -> String {
    let title = parts.title("one shard at a time on each visible GPU of this host, merged at the end");
    // Servers run on the GPUs, and acceptance is replayed where the sweep file says.
    let device = if parts.device == DeviceChoice::Auto { "auto" } else { parts.device_flag() };
    let (search, found) = if parts.starts_servers { ("*", ":") } else { ("auto | cuda", "device=cuda") };
    let (program, sweep, out) = (quote(&parts.program), quote(&parts.sweep), quote(&parts.out));
    let most = parts.most;
    let shards = parts.requested.map_or_else(
        || format!("${{#gpus[@]}}\n[ \"$shards\" -le {most} ] || shards={most} # as many as there are configurations"),
        |requested| requested.to_string(),
    );
    let grouped = if parts.gpus > 1 { grouped(parts.gpus) } else { String::new() };
    let cleanup = if parts.starts_servers {
        "  # A sweep that is killed leaves its server.\n  trap '\"$program\" sweep \"$sweep\" --out \"$(folder \"$shard\")\" \
         --end-servers' EXIT\n"
    } else {
        ""
    };
    format!(
        r#"#!/usr/bin/env bash
{title}
# Run it again to continue where it stopped. CUDA_VISIBLE_DEVICES selects the GPUs, SHARDS the number of shards (the same
# as before, to continue), SPECTUNE the program. Without a GPU the shards run on the CPU, one after another.
set -euo pipefail

program={program}
program=${{SPECTUNE:-$program}}
sweep={sweep}
out={out}
device={device}

gpus=()
case $device in
  {search})
    if [ -n "${{CUDA_VISIBLE_DEVICES+set}}" ]; then
      [ "$CUDA_VISIBLE_DEVICES" = -1 ] || IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
    elif command -v nvidia-smi > /dev/null && list=$(nvidia-smi --query-gpu=index --format=csv,noheader); then
      [ -z "$list" ] || mapfile -t gpus <<< "$list"
    fi
    ;;
esac
if [ "${{#gpus[@]}}" -eq 0 ]; then
  gpus=('')
  [ "$device" != auto ] || device=cpu
else
  {found}
fi
{grouped}shards={shards}
shards=${{SHARDS:-$shards}}
[[ $shards =~ ^[1-9][0-9]{{0,5}}$ ]] || {{ echo "SHARDS is '$shards', expected a number of at least 1" >&2; exit 2; }}

folder() {{ printf '%s' "$out-shard-$1-of-$shards"; }}

# Measures every n-th of the shards on one of n GPUs.
work() {{
  local gpu=$1 shard=$2 child='' log
  trap '[ -z "$child" ] || kill "$child"; wait; exit 143' TERM
{cleanup}  for (( ; shard <= shards; shard += ${{#gpus[@]}})); do
    log=$(folder "$shard").log
    echo "shard $shard/$shards on ${{gpu:-$device}}: see $log" >&2
    CUDA_VISIBLE_DEVICES=$gpu "$program" sweep "$sweep" --device "$device" --shard "$shard/$shards" \
      --out "$(folder "$shard")" --resume >> "$log" 2>&1 &
    child=$!
    wait "$child"
    child=''
  done
}}

mkdir -p "$(dirname "$out")"
workers=()
trap 'kill "${{workers[@]}}" 2> /dev/null || true; wait; exit 130' INT TERM
for ((at = 0; at < ${{#gpus[@]}} && at < shards; at++)); do
  work "${{gpus[at]}}" $((at + 1)) &
  workers+=($!)
done
failed=0
for worker in "${{workers[@]}}"; do
  wait "$worker" || failed=$?
done
if [ "$failed" -ne 0 ]; then
  echo "a shard failed: see its log, and run this script again to continue" >&2
  exit "$failed"
fi

folders=()
for ((shard = 1; shard <= shards; shard++)); do
  folders+=("$(folder "$shard")")
done
"$program" merge "${{folders[@]}}" --out "$out"
"$program" report "$out"
"#
    )
}

/// Shell code that groups the GPUs of one server.
fn grouped(gpus: usize) -> String {
    format!(
        r#"# A server uses {gpus} GPUs.
groups=()
for ((at = 0; at + {gpus} <= ${{#gpus[@]}}; at += {gpus})); do
  groups+=("$(IFS=,; printf '%s' "${{gpus[*]:at:{gpus}}}")")
done
[ "${{#groups[@]}}" -gt 0 ] || {{ echo "a server of this sweep needs {gpus} GPUs" >&2; exit 2; }}
gpus=("${{groups[@]}}")
"#
    )
}
