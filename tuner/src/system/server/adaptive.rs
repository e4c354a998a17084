//! Starts that run a different chain at each batch size: a table of chains, given as SGLang's
//! adaptive file with one candidate per slot, or as vLLM's schedule of draft tokens. One such start
//! measures the rounds of several chains.
//!
//! The engines fall back to one chain silently or with a warning. So the log, the resolved
//! configuration and the number of drafts under load are compared with the table.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use external::api::{Api, ApiKind, ServerInfo};
use schemas::{adaptive, chain_tables, sweep::SystemKind, tree::TreeShape, version::EngineVersion};
use serde_json::Value;

use super::{LaunchPlan, SystemError};
use crate::trials::configuration::{Configuration, TableRow};

/// vLLM's key for the schedule.
pub const SCHEDULE: &str = chain_tables::VLLM_SCHEDULE;
/// Interval at which a server is polled for its current chain.
const ASK: Duration = Duration::from_millis(50);
/// Minimum number of responses that prove that the server runs a chain other than the table's.
const FEWEST_ANSWERS: usize = 3;

/// Checks whether a server can be started with a table of chains, from the description of a running
/// one.
///
/// # Errors
/// The reason, if it cannot.
pub fn serves_tables(plan: &LaunchPlan, info: &ServerInfo) -> Result<(), String> {
    if plan.acceptance.is_some() {
        return Err("servers simulate imported accept lengths with one length for all chains of a start".into());
    }
    if !matches!(plan.algorithm.as_str(), "EAGLE" | "EAGLE3") {
        return Err(format!("no engine can change the chain with the batch size under {}", plan.algorithm));
    }
    // Our own server supports the same file.
    if info.is_spectune() {
        return Ok(());
    }
    let unknown = || "the server does not report its version".to_owned();
    let version: EngineVersion = info.version.as_deref().and_then(|text| text.parse().ok()).ok_or_else(unknown)?;
    match plan.kind {
        SystemKind::Vllm => chain_tables::vllm_measures(version),
        // Tables of probes contain only chains that draft.
        SystemKind::Sglang | SystemKind::Spectune => chain_tables::sglang_follows(version, false),
    }
    .map_err(|why| why.to_string())
}

/// Checks whether a server of a version can be started with the table of a configuration, whose
/// rows may include no speculation.
///
/// # Errors
/// The reason, if it cannot.
pub fn accepts(plan: &LaunchPlan, configuration: &Configuration) -> Result<(), String> {
    let has_zero_steps = configuration.table.iter().any(|row| row.shape.is_off());
    match plan.version.filter(|_| plan.kind != SystemKind::Vllm && !plan.is_own) {
        Some(version) => chain_tables::sglang_follows(version, has_zero_steps).map_err(|why| why.to_string()),
        None => Ok(()),
    }
}

/// The tree to start the server of a configuration with; for a table, its longest chain.
pub fn largest(configuration: &Configuration) -> TreeShape {
    configuration.shapes().max_by_key(|shape| shape.num_steps).unwrap_or(configuration.shape)
}

/// The rows as (first batch, last batch, steps). The last row ends at the maximum number of running
/// requests.
fn ranges(table: &[TableRow], most_running: usize) -> Vec<(usize, usize, usize)> {
    let firsts = [1].into_iter().chain(table.iter().map(|row| row.max_running_batch + 1));
    let mut ranges: Vec<_> =
        firsts.zip(table).map(|(first, row)| (first, row.max_running_batch, row.shape.num_steps)).collect();
    if let Some((_, last, _)) = ranges.last_mut() {
        *last = (*last).max(most_running);
    }
    ranges
}

/// SGLang's file for a table; `None` for a single tree.
pub fn file(configuration: &Configuration) -> Option<String> {
    let table = &configuration.table;
    let slots = ranges(table, 0).into_iter().map(|(first, _, steps)| (first, steps));
    (!table.is_empty()).then(|| adaptive::write(slots))
}

/// vLLM's schedule for a table.
pub fn schedule(table: &[TableRow], most_running: usize) -> Value {
    chain_tables::vllm_schedule(ranges(table, most_running))
}

/// vLLM's capture sizes for batch sizes, in tokens: those of the table's rows, or of the one chain.
pub fn capture_sizes(sizes: &[usize], configuration: &Configuration, most_running: usize) -> Vec<usize> {
    let one = [(1, most_running, configuration.shape.num_steps)];
    match configuration.table.as_slice() {
        [] => chain_tables::vllm_capture_sizes(sizes, &one),
        table => chain_tables::vllm_capture_sizes(sizes, &ranges(table, most_running)),
    }
}

/// Checks by the log and the resolved configuration that a server started with a table does not run
/// a single chain.
///
/// # Errors
/// A message, if it does.
pub fn check_started(configuration: &Configuration, info: &ServerInfo, log: &str) -> Result<(), String> {
    if configuration.table.is_empty() {
        return Ok(());
    }
    let falls_back = |line: &&str| {
        line.contains("speculative_adaptive disabled")
            || (line.contains(SCHEDULE) && ["Disabling", "not supported"].iter().any(|word| line.contains(word)))
    };
    if let Some(line) = log.lines().find(falls_back) {
        return Err(format!("the server drafts one chain at all batch sizes; its log says: {}", line.trim()));
    }
    let answer = info.resolved.as_ref();
    if answer.is_some_and(|answer| answer["speculative_adaptive"] == false) {
        return Err("the server was started with --speculative-adaptive but turned it off".into());
    }
    let speculation = answer.map(|answer| &answer["vllm_config"]["speculative_config"]);
    if speculation.is_some_and(|keys| keys.get(SCHEDULE).is_some_and(Value::is_null)) {
        return Err(format!("the server was started with {SCHEDULE} but ignored it"));
    }
    Ok(())
}

/// The chains that a server reported while a load ran.
#[derive(Debug, Default)]
pub struct DraftedChain {
    /// Reported numbers of steps.
    steps: BTreeSet<usize>,
    /// Number of responses while the whole load was running. A response while requests start or end
    /// belongs to another row.
    answers: usize,
}

/// Polls the number of steps that a server drafts until it is the expected one or the load has
/// ended. Empty if the server does not report it.
pub fn steps_while(api: &Api, wanted: usize, batch: usize, ended: &AtomicBool) -> DraftedChain {
    let mut drafted = DraftedChain::default();
    if api.kind() == ApiKind::Vllm {
        return drafted;
    }
    let is_full = || {
        let running = api.counters().ok().and_then(|counters| counters.running);
        running.is_none_or(|running| running as usize == batch)
    };
    loop {
        let was_full = is_full();
        let answer = api.info().ok().and_then(|info| info.resolved);
        let steps = answer.as_ref().and_then(|answer| answer["internal_states"][0]["speculative_num_steps"].as_u64());
        let steps = steps.and_then(|steps| usize::try_from(steps).ok());
        // At the start and the end of a trial fewer requests run, so another chain is right there.
        // The batch must be full before and after the answer.
        if steps == Some(wanted) || (steps.is_some() && was_full && is_full()) {
            drafted.steps.extend(steps);
            drafted.answers += 1;
        }
        if drafted.steps.contains(&wanted) || ended.load(Ordering::Relaxed) {
            return drafted;
        }
        thread::sleep(ASK);
    }
}

/// Fails if a server drafts another chain than its table says. A few responses prove nothing: an
/// engine follows the batch with a delay.
///
/// # Errors
/// A message with both numbers of steps.
pub fn check_steps(drafted: &DraftedChain, wanted: usize, batch: usize) -> Result<(), SystemError> {
    // A few answers may all fall between two changes of the chain.
    if drafted.answers < FEWEST_ANSWERS || drafted.steps.contains(&wanted) {
        return Ok(());
    }
    let steps: Vec<String> = drafted.steps.iter().map(ToString::to_string).collect();
    Err(SystemError::Unsupported(format!(
        "the server drafts {} steps with {batch} requests, where its table says {wanted}",
        steps.join(" or ")
    )))
}

/// Fails if the number of drafts per round is closer to another row of the table.
///
/// # Errors
/// A message with both numbers.
pub fn check_drafted(
    configuration: &Configuration,
    batch: usize,
    proposed: usize,
    rounds: usize,
) -> Result<(), SystemError> {
    if configuration.table.is_empty() || proposed == 0 || rounds == 0 {
        return Ok(());
    }
    let drafted = proposed as f64 / rounds as f64;
    let far = |steps: usize| (drafted - steps as f64).abs();
    let wanted = configuration.shape_at(batch).num_steps;
    let nearest = configuration.shapes().map(|shape| shape.num_steps).min_by(|a, b| far(*a).total_cmp(&far(*b)));
    if nearest.is_none_or(|nearest| far(nearest) >= far(wanted)) {
        return Ok(());
    }
    Err(SystemError::Unsupported(format!(
        "the server drafts {drafted:.1} tokens per round with {batch} requests, where its table says {wanted}"
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Configuration {
        let row = |(batch, steps)| TableRow::for_any_context(batch, TreeShape::chain(steps));
        let table: Vec<TableRow> = [(1, 5), (8, 3), (32, 1)].map(row).into();
        Configuration { table, ..Configuration::from_shape(TreeShape::chain(1)) }
    }

    #[test]
    fn a_table_becomes_what_its_engine_reads() {
        let file: Value = serde_json::from_str(&file(&table()).expect("a table")).expect("JSON");
        let slot = |steps: usize| json!({"candidate_steps": [steps]});
        assert_eq!(file, json!({"1": slot(5), "2": slot(3), "9": slot(1)}));
        assert_eq!(super::file(&Configuration::from_shape(TreeShape::chain(3))), None);
        assert_eq!(schedule(&table().table, 48), json!([[1, 1, 5], [2, 8, 3], [9, 48, 1]]));
        assert_eq!(largest(&table()), TreeShape::chain(5));
    }

    #[test]
    fn a_server_that_falls_back_is_reported_by_its_log_or_its_answer() {
        let info = |resolved: Value| ServerInfo { resolved: Some(resolved), ..ServerInfo::default() };
        let check = |resolved, log: &str| check_started(&table(), &info(resolved), log);
        assert_eq!(check(json!({"speculative_adaptive": true}), "all is well\n"), Ok(()));
        let log = "[x] speculative_adaptive disabled: dp attention. Falling back to static speculative params.\n";
        assert!(check(json!({}), log).is_err_and(|words| words.contains("dp attention")));
        let log = format!(
            "WARNING Dynamic speculative decoding is not supported with data parallelism. Disabling {SCHEDULE} and falling back"
        );
        assert!(check(json!({}), &log).is_err_and(|words| words.contains("data parallelism")));
        let log = format!("INFO non-default args: {{'speculative_config': {{'{SCHEDULE}': [[1, 8, 3]]}}}}");
        assert_eq!(check(json!({}), &log), Ok(()));
        assert!(check(json!({"speculative_adaptive": false}), "").is_err());
        assert!(check(json!({"vllm_config": {"speculative_config": {SCHEDULE: null}}}), "").is_err());
        let one = Configuration::from_shape(TreeShape::chain(3));
        assert_eq!(check_started(&one, &info(json!({"speculative_adaptive": false})), &log), Ok(()));
    }

    #[test]
    fn another_chain_than_the_tables_is_an_error() {
        let said = |steps: &[usize], answers| DraftedChain { steps: steps.iter().copied().collect(), answers };
        for (steps, answers) in [(&[][..], 0), (&[5, 3], 9), (&[5], 2)] {
            assert!(check_steps(&said(steps, answers), 3, 8).is_ok(), "{steps:?}, {answers} answers");
        }
        let error = check_steps(&said(&[1, 5], 3), 3, 8).expect_err("another chain").to_string();
        assert_eq!(error, "the server drafts 1 or 5 steps with 8 requests, where its table says 3");
        for (proposed, fine) in [(0, true), (300, true), (320, true), (110, false), (450, false)] {
            assert_eq!(check_drafted(&table(), 8, proposed, 100).is_ok(), fine, "{proposed}");
        }
    }
}
