//! A sweep of several prompt files: one sweep after the other, each in a folder of its own, and a
//! report of all.

use schemas::sweep::OneWorkload;

use super::{SweepJob, measure};
use crate::{commands::report, exit::Exit, sweep_inputs, terminal, wrong_file::WrongFile};

/// Runs the sweep of each prompt file. A sweep that is interrupted, or fails, ends the others too:
/// all are continued together.
///
/// # Errors
/// As [`measure`].
pub fn measure_each(job: &SweepJob<'_>) -> anyhow::Result<Exit> {
    // All of them are checked before the first one starts.
    sweep_inputs::resolve(job.file.clone(), &job.folder, &job.source)
        .map_err(|findings| WrongFile::all(job.source.clone(), findings))?;
    let each = job.file.each_workload();
    if !job.resume
        && let Some(one) = each.iter().find(|one| tuner::trials::journal::exists(&job.out.join(&one.name)))
    {
        return Err(tuner::trials::journal::already_there(&job.out.join(&one.name)).into());
    }
    let count = each.len();
    let (mut exit, mut folders) = (Exit::Fine, Vec::new());
    for (at, OneWorkload { name, file }) in each.into_iter().enumerate() {
        terminal::note(&format!("workload {name} ({} of {count})", at + 1));
        let out = job.out.join(&name);
        let ended = measure(SweepJob {
            file,
            out: out.clone(),
            folder: job.folder.clone(),
            source: job.source.clone(),
            again: job.again.clone(),
            words: str::to_owned,
            check_version: None,
            ..*job
        })?;
        match ended.exit {
            Exit::Fine => {}
            Exit::Findings => exit = Exit::Findings,
            other => return Ok(other),
        }
        folders.push(out);
    }
    if job.dry_run {
        return Ok(exit);
    }
    let input = report::input(&folders)?;
    let files = reports::write(&input, &job.out)?;
    terminal::print(&reports::across_workloads(&input, terminal::width()))?;
    terminal::note(&format!("all workloads: {}", report::written(&files)));
    Ok(exit)
}
