//! `spectune simulate --against`: measured loads beside their simulations.

use std::path::Path;

use serde::Serialize;
use tuner::forecast::{
    compare::{ComparedRun, RoundErrors, compare, read_runs, round_errors},
    drafts::Drafts,
    kinds,
    times::StepTimes,
};

use super::progress::SimulationProgress;
use crate::{exit::Exit, terminal};

/// Groups of fewer timed rounds than this do not count: a busy host makes single rounds longer.
const LEAST_ROUNDS: u64 = 10;

#[derive(Serialize)]
struct ComparisonReport<'a> {
    /// Times are measured and simulated; acceptance is that of a trace in both.
    simulated_acceptance: bool,
    runs: &'a [ComparedRun],
    round_errors: Option<RoundErrors>,
    /// Why figures need care.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Compares and prints.
pub fn run(measured: &Path, drafts: &Drafts, times: &StepTimes, json: bool) -> anyhow::Result<Exit> {
    let runs = read_runs(measured)?;
    let mut compared = Vec::with_capacity(runs.len());
    let mut shown = SimulationProgress::new(runs.len(), "measured loads");
    for run in &runs {
        if !shown.goes_on(compared.len(), runs.len()) {
            break;
        }
        compared.push(compare(run, drafts, times)?);
    }
    drop(shown);
    let notes = kinds::warning(drafts.algorithm(), times).into_iter().collect();
    print(&compared, times, notes, json)?;
    if compared.len() < runs.len() {
        terminal::note(&format!("interrupted; {} of {} measured loads are compared", compared.len(), runs.len()));
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Fine)
}

fn print(compared: &[ComparedRun], times: &StepTimes, notes: Vec<String>, json: bool) -> anyhow::Result<()> {
    let errors = round_errors(compared, LEAST_ROUNDS);
    if json {
        let report = ComparisonReport { simulated_acceptance: true, runs: compared, round_errors: errors, notes };
        return terminal::print(&format!("{}\n", serde_json::to_string(&report)?));
    }
    terminal::print(&report(compared, errors))?;
    terminal::note(&format!(
        "seconds: until the requests that count are done; simulated acceptance in both, times: {}",
        times.source()
    ));
    Ok(())
}

fn report(compared: &[ComparedRun], errors: Option<RoundErrors>) -> String {
    let mut text = String::from(
        "policy           load                                  seconds  simulated   error   tok/s  simulated   error  \
         accept  simulated\n",
    );
    for one in compared {
        let error = |[measured, simulated]: [f64; 2]| format!("{:+.1}%", 100.0 * (simulated / measured - 1.0));
        let accept = |length: Option<f64>| length.map_or_else(|| "-".to_owned(), |length| format!("{length:.3}"));
        let ([seconds, simulated_s], [rate, simulated_rate]) = (one.seconds, one.output_tokens_per_s);
        text += &format!(
            "{:<16} {:<36} {seconds:>8.3} {simulated_s:>10.3} {:>7} {rate:>7.0} {simulated_rate:>10.0} {:>7} {:>7} {:>10}\n",
            one.policy,
            one.load,
            error(one.seconds),
            error(one.output_tokens_per_s),
            accept(one.accept_length[0]),
            accept(one.accept_length[1]),
        );
    }
    text += "\nround            batch  context  rounds        ms  simulated   error  policy\n";
    for one in compared {
        for group in one.rounds.iter().filter(|group| group.timed >= LEAST_ROUNDS) {
            let shape = if group.shape.is_off() { "none".to_owned() } else { group.shape.to_string() };
            let [ms, simulated] = group.ms;
            text += &format!(
                "{shape:<16} {:>5} {:>8.0} {:>7} {ms:>9.3} {simulated:>10.3} {:>+6.1}%  {}\n",
                group.batch,
                group.context,
                group.timed,
                100.0 * (simulated / ms - 1.0),
                one.policy
            );
        }
    }
    if let Some(RoundErrors { groups, median, ninety_percent }) = errors {
        text += &format!(
            "\nround times, {groups} groups of at least {LEAST_ROUNDS} rounds: median error {:.1}%, 90% within {:.1}%\n",
            100.0 * median,
            100.0 * ninety_percent
        );
    }
    text
}
