//! `spectune report --fail-if`: a check that a newer run is not worse than older ones.

use std::path::{Path, PathBuf};

use anyhow::bail;
use reports::Sweep;
use tuner::{
    regression::{CheckOutcome, FEWEST_RUNS, FailCondition, RegressionCheck, RunSummary, check, check_paired},
    results::selection::Comparison,
    running::{
        journal,
        result::{paired, unpaired},
    },
    trials::configuration::TrialLoad,
};

use crate::{exit::Exit, results_folder, terminal};

/// Checks a condition. Of several folders the second is the newer run, all others are older ones; a
/// single folder holds two servers that were measured in turns.
///
/// # Errors
/// When a folder cannot be read, or there is nothing to check.
pub fn run(folders: &[PathBuf], load: Option<&str>, condition: FailCondition) -> anyhow::Result<Exit> {
    folders.iter().try_for_each(|folder| results_folder::check_has_journal(folder))?;
    let checks = match folders {
        [one] => check_servers(one, load, condition)?,
        [first, newer, ..] => {
            let runs = different_runs(folders);
            if is_same_run(first, newer) {
                let (first, newer) = (first.display(), newer.display());
                terminal::print(&format!(
                    "cannot tell: {newer} is the same run as {first}, so nothing newer is compared: give the newer run \
                     second\n"
                ))?;
                return Ok(Exit::Unknown);
            }
            check_runs(&runs, load, condition)?
        }
        [] => Vec::new(),
    };
    if checks.is_empty() {
        bail!("there is nothing to check{}", load.map_or_else(String::new, |load| format!(" under the load {load}")));
    }
    for check in &checks {
        terminal::print(&format!("{}\n", line(check)))?;
    }
    let is = |wanted: fn(&CheckOutcome) -> bool| checks.iter().any(|check| wanted(&check.outcome));
    Ok(match () {
        // One load that is worse decides, whatever cannot be told of others.
        () if is(|outcome| *outcome == CheckOutcome::Worse) => Exit::Findings,
        () if is(|outcome| matches!(outcome, CheckOutcome::Unknown(_))) => Exit::Unknown,
        () => Exit::Fine,
    })
}

/// The folders without those that hold a run which an earlier one holds: a run has no scatter with
/// itself.
fn different_runs(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut runs: Vec<PathBuf> = Vec::new();
    for folder in folders {
        match runs.iter().find(|known| is_same_run(known, folder)) {
            Some(known) => terminal::note(&format!(
                "{} holds the same run as {}: the two count as one",
                folder.display(),
                known.display()
            )),
            None => runs.push(folder.clone()),
        }
    }
    runs
}

/// Whether two folders are one, or one is a copy of the other.
fn is_same_run(one: &Path, other: &Path) -> bool {
    let place = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if place(one) == place(other) {
        return true;
    }
    let name = |folder: &Path| tuner::trials::journal::read(folder).ok().map(|contents| contents.header.journal);
    let (one, other) = (name(one), name(other));
    // Journals of format 2 have no name, which does not make them one run.
    one.is_some_and(|name| !name.is_empty() && other.is_some_and(|other| other == name))
}

fn check_runs(
    folders: &[PathBuf],
    load: Option<&str>,
    condition: FailCondition,
) -> anyhow::Result<Vec<RegressionCheck>> {
    let sweeps = folders.iter().map(|folder| Sweep::read(folder)).collect::<Result<Vec<_>, _>>()?;
    sweeps.iter().flat_map(Sweep::named_notices).for_each(|notice| terminal::note(&notice));
    let runs: Vec<RunSummary<'_>> =
        sweeps.iter().map(|sweep| RunSummary { name: &sweep.name, records: &sweep.records }).collect();
    let (Some(first), Some(newer)) = (runs.first(), runs.get(1)) else { return Ok(Vec::new()) };
    let load = load.map(|load| named(load, first.records.iter().map(|record| record.trial.load))).transpose()?;
    let older: Vec<RunSummary<'_>> = std::iter::once(first).chain(runs.iter().skip(2)).copied().collect();
    if older.len() < FEWEST_RUNS {
        terminal::note(&format!(
            "{} older runs are given; the scatter between runs needs {FEWEST_RUNS}: give more folders",
            older.len()
        ));
    }
    let comparison = sweeps[0].file().map_or_else(|| Comparison::from(sweeps[0].metric()), Comparison::from_sweep);
    Ok(check(&older, *newer, comparison, load, condition))
}

fn check_servers(folder: &Path, load: Option<&str>, condition: FailCondition) -> anyhow::Result<Vec<RegressionCheck>> {
    if !journal::is_running(folder) {
        bail!(
            "{} is one run: give an older and a newer one, and further older ones, or a folder of two servers that were \
             measured in turns",
            folder.display()
        );
    }
    let contents = journal::read(folder)?;
    let left_out = contents.left_out().map(|words| format!("{}: {words}", folder.display()));
    left_out.iter().for_each(|words| terminal::note(words));
    let (paired, unpaired) = (paired(&contents.records), unpaired(&contents.records, &contents.header.servers));
    if paired.is_empty() && unpaired.is_empty() {
        bail!(
            "{} has no two servers that were measured in turns: measure them with `spectune tune --url URL --url URL2`",
            folder.display()
        );
    }
    let loads = paired.iter().map(|pair| pair.load).chain(unpaired.iter().map(|one| one.load));
    let load = load.map(|load| named(load, loads)).transpose()?;
    let mut checks = check_paired(&paired, load, condition);
    for one in unpaired.into_iter().filter(|one| load.is_none_or(|load| one.load == load)) {
        // Without any pair the load has no answer; if only some are missing, the others give one.
        if one.is_all {
            let outcome = CheckOutcome::Unknown(one.reason);
            checks.push(RegressionCheck { load: one.load, configuration: None, ratio: None, outcome });
        } else {
            terminal::note(&format!("warning: {}", one.reason));
        }
    }
    Ok(checks)
}

/// The load with a name, or a batch size.
fn named(name: &str, loads: impl Iterator<Item = TrialLoad>) -> anyhow::Result<TrialLoad> {
    let mut known: Vec<TrialLoad> = loads.collect();
    known.sort_unstable();
    known.dedup();
    let wanted = name.parse().map_or_else(|_| name.to_owned(), |size| TrialLoad::BatchSize(size).to_string());
    if let Some(load) = known.iter().find(|load| load.to_string() == wanted) {
        return Ok(*load);
    }
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    bail!("the load {name} was not measured; measured were {}", known.join(", "))
}

fn line(check: &RegressionCheck) -> String {
    let what = check.configuration.as_ref().map_or_else(String::new, |configuration| format!(", {configuration}"));
    let ratio = check
        .ratio
        .map_or_else(String::new, |ratio| format!(" {:.3} ({:.3} to {:.3})", ratio.median, ratio.low, ratio.high));
    let outcome = match &check.outcome {
        CheckOutcome::Fine => "passes".to_owned(),
        CheckOutcome::Worse => "fails".to_owned(),
        CheckOutcome::Unknown(reason) => format!("cannot tell: {reason}"),
    };
    format!("{}{what}:{ratio} {outcome}", check.load)
}
