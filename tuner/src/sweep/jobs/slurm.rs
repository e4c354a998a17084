//! An array job of SLURM.

use super::{JobParts, quote};

/// The batch script: measures a shard, or merges the shards if called with `merge`.
pub fn script(parts: &JobParts, shards: usize) -> String {
    let title = parts.title(&format!("{shards} shards as an array job of SLURM"));
    let name = &parts.name;
    let device = parts.device_flag();
    let hardware = if parts.needs_gpu() {
        format!(
            "# One kind of GPU for all tasks, such as gpu:h100:{0}: trials of different GPUs are not ranked together.\n\
             #SBATCH --gres=gpu:{0}",
            parts.gpus
        )
    } else {
        "# No other jobs on the node: their load would be measured too.\n\
         #SBATCH --exclusive"
            .into()
    };
    // A killed sweep leaves its server running, and SLURM may not find it, since the server left
    // the session.
    let (cleanup, run) = if parts.starts_servers {
        ("trap '\"$program\" sweep \"$sweep\" --out \"$folder\" --end-servers' EXIT\n", "")
    } else {
        ("", "exec ")
    };
    let (program, sweep, out) = (quote(&parts.program), quote(&parts.sweep), quote(&parts.out));
    format!(
        r#"#!/bin/bash
{title}
# Fill in partition, account and time, then submit it, with the merge as a dependent job:
#   job=$(sbatch --parsable sweep.slurm)
#   sbatch --dependency=afterok:"$job" --wrap 'bash sweep.slurm merge'
# A task that is requeued or submitted again (sbatch --array=3 sweep.slurm) continues where it stopped.
#SBATCH --job-name=spectune-{name}
#SBATCH --array=1-{shards}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
{hardware}
#SBATCH --time=04:00:00
##SBATCH --partition=
##SBATCH --account=
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=spectune-{name}-%A_%a.log
set -euo pipefail

# SPECTUNE, if set, is the path of another copy of the program.
program={program}
program=${{SPECTUNE:-$program}}
sweep={sweep}
out={out}
shards={shards}

if [ "${{1:-}}" = merge ]; then
  folders=()
  for ((shard = 1; shard <= shards; shard++)); do
    folders+=("$out-shard-$shard-of-$shards")
  done
  "$program" merge "${{folders[@]}}" --out "$out"
  exec "$program" report "$out"
fi

# SLURM chooses the GPU: it sets CUDA_VISIBLE_DEVICES.
shard=${{SLURM_ARRAY_TASK_ID:?is not set: submit this file with sbatch}}
folder=$out-shard-$shard-of-$shards
{cleanup}{run}"$program" sweep "$sweep" --device {device} --shard "$shard/$shards" --out "$folder" --resume
"#
    )
}
