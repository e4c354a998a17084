//! Writes `acceptance.json`: acceptance of each tree by position, for planners that take it as
//! input.
//!
//! Acceptance depends on models and prompts, not on the machine or the batch, so trials of all
//! loads of a section are counted together, but for buckets of contexts, whose prompts differ.

use schemas::tree::{RowBudget, TreeShape};
use serde::Serialize;
use tuner::trials::configuration::ContextRange;

use crate::{error::ReportError, race, section::Section};

/// Format version, incremented when readers of older files must change.
const VERSION: u32 = 1;

const DEFINITION: &str = "A round accepts a path of drafted tokens and adds one token of the target. accepted_per_round is the mean length of \
     that path, without the target's token; accepted_by_position[k] is the share of rounds in which at least k + 1 \
     drafted tokens were \
     accepted, so that they add up to it; conditional_by_position[k] is the share among those that accepted k.";

#[derive(Serialize)]
struct AcceptanceData<'a> {
    format: &'static str,
    version: u32,
    definition: &'static str,
    sections: Vec<MeasuredAcceptance<'a>>,
}

/// The trees of one fingerprint.
#[derive(Serialize)]
struct MeasuredAcceptance<'a> {
    engine: &'a str,
    device: &'a str,
    target_hash: &'a str,
    draft_hash: &'a str,
    workload_hash: &'a str,
    shapes: Vec<ImportedAcceptance>,
}

#[derive(Serialize)]
struct ImportedAcceptance {
    /// The name of the draft, of several.
    #[serde(skip_serializing_if = "String::is_empty")]
    draft: String,
    num_steps: usize,
    topk: usize,
    num_draft_tokens: usize,
    /// Verified rows per request, of a tree with a budget of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    row_budget: Option<RowBudget>,
    /// The bucket of contexts whose requests were sent, if there are buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    contexts: Option<ContextRange>,
    /// Number of request-rounds.
    rounds: u64,
    accepted_per_round: f64,
    accepted_by_position: Vec<f64>,
    conditional_by_position: Vec<f64>,
    /// Whether acceptance was simulated; then these figures do not reflect the models.
    simulated: bool,
}

/// The contents of the file.
///
/// # Errors
/// When they cannot be written as JSON.
pub fn json(sections: &[Section<'_>]) -> Result<String, ReportError> {
    let sections = sections.iter().map(|section| MeasuredAcceptance {
        engine: &section.fingerprint.engine,
        device: &section.fingerprint.device_name,
        target_hash: &section.fingerprint.target,
        draft_hash: &section.fingerprint.draft,
        workload_hash: &section.fingerprint.workload,
        shapes: shapes(section),
    });
    let data = AcceptanceData {
        format: "spectune-acceptance",
        version: VERSION,
        definition: DEFINITION,
        sections: sections.collect(),
    };
    Ok(serde_json::to_string_pretty(&data)? + "\n")
}

fn shapes(section: &Section<'_>) -> Vec<ImportedAcceptance> {
    type Key = (String, TreeShape, Option<ContextRange>);
    let mut counts: Vec<(Key, Vec<u64>, bool)> = Vec::new();
    for (_, record) in &section.records {
        let configuration = &record.trial.configuration;
        // A table runs several trees, and its trial does not record which round used which.
        let Some(figures) = record.measurement().filter(|_| configuration.table.is_empty()) else { continue };
        if configuration.shape.is_off() || figures.accept_histogram.is_empty() {
            continue;
        }
        let key = (configuration.draft.clone(), configuration.shape, record.trial.load.contexts());
        let at = counts.iter().position(|(known, ..)| *known == key).unwrap_or_else(|| {
            counts.push((key, Vec::new(), false));
            counts.len() - 1
        });
        let (_, sum, simulated) = &mut counts[at];
        sum.resize(sum.len().max(figures.accept_histogram.len()), 0);
        sum.iter_mut().zip(&figures.accept_histogram).for_each(|(sum, count)| *sum += count);
        *simulated |= figures.simulated;
    }
    counts.sort_by(|a, b| a.0.cmp(&b.0));
    let of = |((draft, shape, contexts), counts, simulated): (Key, Vec<u64>, bool)| {
        Some(ImportedAcceptance { draft, contexts, ..ImportedAcceptance::from_counts(shape, &counts, simulated)? })
    };
    counts.into_iter().filter_map(of).collect()
}

impl ImportedAcceptance {
    /// Computes the figures from the number of rounds that accepted 0, 1, … drafts; `None` without
    /// a round.
    fn from_counts(shape: TreeShape, counts: &[u64], simulated: bool) -> Option<Self> {
        let at_least = race::at_least(counts);
        let rounds = at_least.first().copied().filter(|rounds| *rounds > 0)?;
        let accepted_by_position = race::positions(counts);
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Some(Self {
            draft: String::new(),
            num_steps: shape.num_steps,
            topk: shape.topk,
            num_draft_tokens: shape.num_draft_tokens,
            row_budget: shape.row_budget,
            contexts: None,
            rounds,
            accepted_per_round: accepted_by_position.iter().sum(),
            conditional_by_position: at_least.windows(2).map(|pair| share(pair[1], pair[0])).collect(),
            accepted_by_position,
            simulated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_differs_from_the_whole_tree() {
        let written = |shape: &str| {
            let one = ImportedAcceptance::from_counts(shape.parse().expect("a shape"), &[4, 6], false).expect("rounds");
            serde_json::to_value(one).expect("data")["row_budget"].clone()
        };
        assert_eq!(written("3,1,4~2.5"), serde_json::json!(2.5));
        assert!(written("3,1,4").is_null());
    }

    #[test]
    fn shares_are_counted_from_the_rounds_that_accepted_so_many() {
        // Of ten rounds, four accept no draft, three one, two two, and one three.
        let one = ImportedAcceptance::from_counts(TreeShape::chain(3), &[4, 3, 2, 1], false).expect("rounds");
        assert_eq!(one.rounds, 10);
        assert_eq!(one.accepted_by_position, [0.6, 0.3, 0.1]);
        assert_eq!(one.conditional_by_position, [0.6, 0.5, 1.0 / 3.0]);
        assert!((one.accepted_per_round - 1.0).abs() < 1e-12);
        assert!(ImportedAcceptance::from_counts(TreeShape::chain(3), &[0, 0], false).is_none());
        assert!(ImportedAcceptance::from_counts(TreeShape::chain(3), &[], false).is_none());
    }
}
