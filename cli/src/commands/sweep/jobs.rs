//! Sweeps in a scheduler's jobs: the shard of this task, and job files.

use anyhow::{Context, bail};
use schemas::sweep::SweepFile;
use tuner::{
    strategy::Shard,
    sweep::jobs::{JobRequest, JobScheduler, place},
};

use super::{Arguments, default_out};
use crate::{exit::Exit, terminal};

/// The shard to measure: the user's choice, else the one from the environment, which is then
/// printed. `None` for all.
pub fn shard(requested: Option<Shard>) -> anyhow::Result<Option<Shard>> {
    let shard = match requested {
        Some(shard) => Some(shard),
        None => place::shard(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))?.map(|placed| {
            terminal::note(&format!("shard {}, from {} (--shard 1/1 for all)", placed.shard, placed.because));
            placed.shard
        }),
    };
    Ok(shard.filter(|shard| shard.count > 1))
}

/// Prints a job file.
pub fn emit(scheduler: JobScheduler, file: &SweepFile, arguments: &Arguments) -> anyhow::Result<Exit> {
    if arguments.sweep.as_os_str() == "-" {
        bail!("--emit: a job needs a sweep file that it can read again, not standard input");
    }
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let request = JobRequest {
        file,
        path: &arguments.sweep,
        out: &arguments.out.clone().unwrap_or_else(|| default_out(&arguments.sweep, None)),
        program: &program,
        device: arguments.device,
        shards: arguments.shards,
    };
    let job = scheduler.job(&request)?;
    let shards = job.shards.map_or_else(|| "as many shards as GPUs".into(), |shards| format!("{shards} shards"));
    terminal::note(&format!(
        "{shards} for {} configurations; the baselines run in every shard, and --shards sets their number",
        job.configurations
    ));
    if job.shards.is_some_and(|shards| shards > job.configurations) {
        terminal::note("there are more shards than configurations: some shards measure only the baselines");
    }
    terminal::print(&job.text)?;
    Ok(Exit::Fine)
}
