//! Compares a simulation with a measurement of the same load: each measured run says which
//! requests, policy and setup it had, so that it can be simulated again.

use std::path::Path;

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Setup, SimulatedWorkload,
    drafts::Drafts,
    figures::Figures,
    load::Load,
    plan::{NamedTable, SimulatedRow},
    simulate_policy,
    times::StepTimes,
};
use crate::{
    TunerError,
    files::atomic_file::{self, FormatVersion},
    statistics::median,
};

/// Version of the format of a measured run, and of a file of policies.
pub const FORMAT: u32 = 1;
/// Largest file in bytes.
const LARGEST: u64 = 256 << 20;

/// How a file of measured runs is made.
const WRITTEN_BY: &str = "`spectune bench --simulate-acceptance … --json` writes such lines";

/// A file of policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// [`FORMAT`].
    pub format: u32,
    /// The policies.
    pub policies: Vec<NamedTable>,
}

/// A load that was measured with simulated acceptance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// [`FORMAT`].
    pub format: u32,
    /// Always true: times are measured, acceptance is that of a trace.
    pub simulated_acceptance: bool,
    /// The device.
    pub device: String,
    /// The policy.
    pub policy: NamedTable,
    /// The load.
    pub load: Load,
    /// The number of the draw of its requests.
    pub draw: u64,
    /// How the engine was set up.
    pub setup: Setup,
    /// What was measured.
    pub figures: Figures,
}

/// A measured run beside its simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// The policy's name.
    pub policy: String,
    /// The load in words.
    pub load: String,
    /// Seconds until the share that counts is done, measured and simulated.
    pub seconds: [f64; 2],
    /// Output tokens per second, measured and simulated.
    pub output_tokens_per_s: [f64; 2],
    /// Tokens per round, measured and simulated.
    pub accept_length: [Option<f64>; 2],
    /// For each group of timed rounds: the measured mean time in ms, and the time that the model
    /// says at the same shape, batch and context.
    pub rounds: Vec<ComparedRounds>,
}

/// Timed rounds of one shape and batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedRounds {
    /// The tree.
    pub shape: TreeShape,
    /// The padded batch.
    pub batch: usize,
    /// Mean number of its requests.
    pub requests: f64,
    /// Their mean context.
    pub context: f64,
    /// Number of timed rounds.
    pub timed: u64,
    /// Measured mean time and simulated time in ms.
    pub ms: [f64; 2],
}

/// How far simulated round times are from measured ones, over all groups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundErrors {
    /// Number of groups.
    pub groups: usize,
    /// Median of |simulated / measured − 1|.
    pub median: f64,
    /// The value that nine of ten groups do not exceed.
    pub ninety_percent: f64,
}

impl Policies {
    /// Reads a file of policies.
    ///
    /// # Errors
    /// When it cannot be read, has another format, or names no policy or one name twice.
    pub fn read(path: &Path) -> Result<Self, TunerError> {
        let text =
            atomic_file::read(path, LARGEST).map_err(|source| TunerError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| TunerError::Malformed {
            path: path.to_owned(),
            reason: format!("{reason}; write the file again with `spectune simulate … --policies-out FILE`"),
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found: Self = current(text)?;
        if found.policies.is_empty() {
            return Err("it contains no policy".into());
        }
        for (at, policy) in found.policies.iter().enumerate() {
            check_table(policy)?;
            // Measured lines name their policy.
            if found.policies[..at].iter().any(|one| one.name == policy.name) {
                return Err(format!("two policies are named {}", policy.name));
            }
        }
        Ok(found)
    }
}

/// Checks that every row of a policy's table can hold for some round, and no two for the same one.
fn check_table(policy: &NamedTable) -> Result<(), String> {
    let wrong = |reason: String| format!("the policy {}: {reason}", policy.name);
    policy.table().map_err(|error| wrong(error.to_string()))?;
    for (at, row) in policy.rows.iter().enumerate() {
        let SimulatedRow { batch, context, .. } = *row;
        if batch == 0 {
            return Err(wrong(format!("row {} holds up to a batch of 0 requests, expected at least 1", at + 1)));
        }
        if let Some(context) = context.filter(|context| !(context.is_finite() && *context >= 1.0)) {
            let reason = format!("row {} holds up to a context of {context} tokens, expected at least 1", at + 1);
            return Err(wrong(reason));
        }
        if let Some(other) = policy.rows[..at].iter().position(|other| (other.batch, other.context) == (batch, context))
        {
            return Err(wrong(format!("rows {} and {} hold for the same batch and context", other + 1, at + 1)));
        }
    }
    Ok(())
}

/// Reads measured runs, one per line.
///
/// # Errors
/// When the file cannot be read or contains no run, or a line has another format or an impossible
/// load.
pub fn read_runs(path: &Path) -> Result<Vec<MeasuredRun>, TunerError> {
    let text = atomic_file::read(path, LARGEST).map_err(|source| TunerError::Read { path: path.to_owned(), source })?;
    let run = |(at, line): (usize, &str)| {
        let wrong = |reason: String| TunerError::Malformed {
            path: path.to_owned(),
            reason: format!("line {}: {reason}; {WRITTEN_BY}", at + 1),
        };
        let run: MeasuredRun = current(line).map_err(wrong)?;
        let checked = check_table(&run.policy).and_then(|()| run.load.check()).and_then(|()| run.figures.check());
        checked.map_err(wrong)?;
        Ok(run)
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let runs = lines.map(run).collect::<Result<Vec<_>, TunerError>>()?;
    if runs.is_empty() {
        let reason = format!("it contains no measured run; {WRITTEN_BY}");
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    }
    Ok(runs)
}

/// Parses what has the current [`FORMAT`].
fn current<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Before the rest, so that an older file is reported as such and not by a field that it lacks.
    let version: FormatVersion = serde_json::from_str(text).map_err(|error| error.to_string())?;
    version.expect(FORMAT)?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Simulates a measured run again.
///
/// # Errors
/// When the acceptance or the time of a shape is unknown.
pub fn compare(run: &MeasuredRun, drafts: &Drafts, times: &StepTimes) -> Result<ComparedRun, TunerError> {
    let MeasuredRun { policy, load, draw, setup, figures, .. } = run;
    let jobs = load.requests.draw(drafts, *draw);
    let arrivals = load.sent.arrivals(jobs.len(), *draw);
    let simulation = SimulatedWorkload { jobs: &jobs, arrivals: &arrivals, setup, drafts, times, until: load.until() };
    let simulated = Figures::from_forecast(&simulate_policy(&simulation, &mut policy.table()?)?, &setup.capture_sizes);
    let seconds = |figures: &Figures| load.done_s(&figures.ends_s).unwrap_or(figures.elapsed_s);
    // Rounds that were only counted have no time to compare.
    let rounds = figures.rounds.iter().filter(|group| group.timed > 0).map(|group| {
        let rows = group.shape.verified_rows(group.batch);
        let simulated = times.round(group.shape, group.filling(), rows, 0)?;
        Ok(ComparedRounds {
            shape: group.shape,
            batch: group.batch,
            requests: group.filling().requests,
            context: group.filling().context,
            timed: group.timed,
            ms: [group.ms, simulated],
        })
    });
    Ok(ComparedRun {
        policy: policy.name.clone(),
        load: load.to_string(),
        seconds: [seconds(figures), seconds(&simulated)],
        output_tokens_per_s: [figures.output_tokens_per_s, simulated.output_tokens_per_s],
        accept_length: [figures.accept_length, simulated.accept_length],
        rounds: rounds.collect::<Result<_, TunerError>>()?,
    })
}

/// The errors of round times over groups of at least `least` timed rounds; `None` without such a
/// group.
pub fn round_errors(compared: &[ComparedRun], least: u64) -> Option<RoundErrors> {
    let groups = compared.iter().flat_map(|one| &one.rounds).filter(|group| group.timed >= least);
    let mut errors: Vec<f64> = groups.map(|group| (group.ms[1] / group.ms[0] - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let last = errors.len().checked_sub(1)?;
    let ninety_percent = errors[((0.9 * errors.len() as f64).ceil() as usize).clamp(1, errors.len()) - 1];
    Some(RoundErrors { groups: last + 1, median: median(errors.clone())?, ninety_percent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{
        figures::RoundGroup,
        load::SendPattern,
        rollout::{OutputLengths, Rollout},
    };

    fn run() -> MeasuredRun {
        let requests = Rollout {
            prompts: 2,
            samples: 1,
            prompt_tokens: 4,
            lengths: OutputLengths::Recorded(vec![5]),
            ..Rollout::default()
        };
        let shape = TreeShape::chain(1);
        let round = RoundGroup { shape, batch: 1, rounds: 9, context: 8.0, requests: 1.0, timed: 9, ms: 2.0 };
        MeasuredRun {
            format: FORMAT,
            simulated_acceptance: true,
            device: "a device".into(),
            policy: NamedTable { name: "fixed".into(), rows: vec![SimulatedRow { batch: 8, context: None, shape }] },
            load: Load { requests, sent: SendPattern::Closed(1) },
            draw: 0,
            setup: Setup {
                capture_sizes: vec![1],
                max_running_requests: 8,
                memory: None,
                prefill_budget: 8,
                prefill_chunk: 8,
                rounds_behind: 0,
                mixed_prefill: false,
            },
            figures: Figures {
                elapsed_s: 1.0,
                prefill_s: 0.1,
                output_tokens: 10,
                output_tokens_per_s: 10.0,
                accept_length: Some(1.5),
                energy_j: None,
                ends_s: vec![0.5, 1.0],
                retractions: 0,
                rounds: vec![round],
            },
        }
    }

    #[test]
    fn measured_runs_are_read_and_impossible_ones_refused_with_their_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("measured.jsonl");
        let read = |lines: &[MeasuredRun]| {
            let lines: Vec<String> =
                lines.iter().map(|run| format!("{}\n\n", serde_json::to_string(run).expect("data"))).collect();
            std::fs::write(&path, lines.concat()).expect("writable");
            read_runs(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read(&[run(), run()]), Ok(vec![run(), run()]));
        let refused = |lines: &[MeasuredRun], words: &str| {
            let error = read(lines).expect_err(words);
            assert!(error.contains("measured.jsonl") && error.contains(words), "{error}");
        };
        refused(&[], "no measured run");
        let mut huge = run();
        (huge.load.requests.prompts, huge.load.requests.samples) = (100_000, 100_000);
        refused(&[run(), huge], "line 3: 100000 prompts");
        let mut wide = run();
        wide.figures.rounds[0].batch = usize::MAX;
        refused(&[wide], "line 1: rounds of a batch");
        let mut instant = run();
        instant.figures.rounds[0].ms = 0.0;
        refused(&[instant], "line 1: rounds of a batch");
    }

    #[test]
    fn rows_of_policies_hold_for_batches_and_contexts_that_exist() {
        let row = |batch, context| SimulatedRow { batch, context, shape: TreeShape::chain(1) };
        let policies = |rows: &[SimulatedRow]| {
            let policies = vec![NamedTable { name: "table".into(), rows: rows.to_vec() }];
            Policies::parse(&serde_json::to_string(&Policies { format: FORMAT, policies }).expect("data"))
        };
        policies(&[row(8, Some(512.0)), row(8, None), row(16, Some(512.0)), row(16, None)]).expect("they hold");
        for (rows, words) in [
            (vec![row(0, None)], "row 1 holds up to a batch of 0"),
            (vec![row(8, None), row(9, Some(-1.0))], "row 2 holds up to a context of -1 tokens"),
            (vec![row(8, Some(0.0)), row(8, None)], "row 1 holds up to a context of 0 tokens"),
            (vec![row(8, None), row(8, None)], "rows 1 and 2 hold for the same"),
            (vec![], "no row"),
        ] {
            let found = policies(&rows).expect_err(words);
            assert!(found.contains("the policy table") && found.contains(words), "{found}");
        }
        let never = MeasuredRun { policy: NamedTable { rows: vec![row(8, Some(f64::NAN))], ..run().policy }, ..run() };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("measured.jsonl");
        // A number that is none is written as null, which is the last bucket.
        std::fs::write(&path, serde_json::to_string(&never).expect("data")).expect("writable");
        assert_eq!(read_runs(&path).expect("it is read")[0].policy.rows[0].context, None);
        assert!(check_table(&never.policy).expect_err("no number").contains("a context of NaN tokens"));
    }
}
