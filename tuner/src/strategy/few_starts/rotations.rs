//! Starts that serve several chains, a different one at each batch size.
//!
//! If an engine chooses the number of draft steps by the running batch, one start measures the
//! rounds of several chains. A single start cannot separate the effect of a chain from that of its
//! batch, so the chains rotate over the batches from start to start: a Latin square.

use schemas::tree::TreeShape;

use super::super::Experiment;
use crate::{
    prediction::guide::AcceptanceTable,
    trials::{
        configuration::{Configuration, TableRow},
        record::CandidateRole,
    },
};

/// The rows of the square: tables over the batch sizes of the experiment's closed loops, with
/// chains picked evenly from its candidates with known acceptance. The first table gives the
/// longest chain to the smallest batch, where it is most likely to be run. Empty if there is only
/// one batch size or one chain.
pub fn rotations(experiment: &Experiment, acceptance: &AcceptanceTable) -> Vec<Configuration> {
    let mut batches: Vec<usize> = experiment.loads.iter().filter_map(|load| load.batch_size()).collect();
    batches.sort_unstable();
    batches.dedup();
    let chains =
        experiment.entrants.iter().filter(|one| one.role == CandidateRole::Candidate && one.configuration.is_plain());
    let chains = chains.map(|one| one.configuration.shape).filter(|shape| is_chain(*shape));
    let mut chains: Vec<TreeShape> = chains.filter(|shape| acceptance.length(*shape).is_some()).collect();
    chains.sort_unstable_by(|a, b| b.cmp(a));
    chains.dedup();
    if batches.len() < 2 || chains.len() < 2 {
        return Vec::new();
    }
    let chains = spread(&chains, batches.len());
    let table = |turn: usize| {
        let row = |(at, batch): (usize, &usize)| TableRow::for_any_context(*batch, chains[(at + turn) % chains.len()]);
        let table: Vec<TableRow> = batches.iter().enumerate().map(row).collect();
        let shape = table.last().map_or(TreeShape::OFF, |row| row.shape);
        Configuration { table, ..Configuration::from_shape(shape) }
    };
    (0..chains.len()).map(table).collect()
}

/// Whether a tree is a chain with at least one step.
pub fn is_chain(shape: TreeShape) -> bool {
    shape.topk == 1 && !shape.is_off()
}

/// At most this many elements of a list, evenly spaced and including its ends.
fn spread(all: &[TreeShape], most: usize) -> Vec<TreeShape> {
    let count = all.len().min(most);
    let place = |at: usize| (at * (all.len() - 1) + (count - 1) / 2) / (count - 1).max(1);
    (0..count).filter_map(|at| all.get(place(at)).copied()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemas::sweep::Metric;

    use super::*;
    use crate::{
        prediction::guide::{AcceptanceRow, AcceptanceSource},
        results::selection::Looks,
        space::Candidate,
        trials::configuration::TrialLoad,
    };

    /// Tables for chains of these steps at these batch sizes; the experiment also contains a tree.
    fn tables(steps: &[usize], batches: &[usize]) -> Vec<Configuration> {
        let shapes: Vec<TreeShape> = steps
            .iter()
            .map(|steps| TreeShape::chain(*steps))
            .chain([TreeShape::OFF, "3,2,6".parse().expect("a tree")])
            .collect();
        let role =
            |shape: &TreeShape| if shape.is_off() { CandidateRole::NoSpeculation } else { CandidateRole::Candidate };
        let entrant =
            |shape: &TreeShape| Candidate { configuration: Configuration::from_shape(*shape), role: role(shape) };
        let row = |shape: &TreeShape| AcceptanceRow {
            shape: *shape,
            accept_length: 2.0,
            interval: None,
            histogram: Vec::new(),
        };
        let experiment = Experiment {
            entrants: shapes.iter().map(entrant).collect(),
            loads: batches.iter().map(|batch| TrialLoad::BatchSize(*batch)).chain([TrialLoad::Recorded]).collect(),
            repeats: 1,
            metric: Metric::Throughput,
            looks: Looks::Planned,
            restarts: true,
        };
        let source = AcceptanceSource::Replayed { texts: 1, tokens: 1 };
        let rows = shapes.iter().map(row).collect();
        rotations(&experiment, &AcceptanceTable { source, rows, text_drafts: Vec::new() })
    }

    #[test]
    fn each_chain_meets_each_batch_size_once() {
        let all = tables(&[1, 2, 3, 4, 5, 6, 7], &[32, 1, 8]);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].to_string(), "table ≤1: 7,1,8; ≤8: 4,1,5; ≤32: 1,1,2");
        let cells: BTreeSet<(usize, TreeShape)> =
            all.iter().flat_map(|one| one.table.iter().map(|row| (row.max_running_batch, row.shape))).collect();
        assert_eq!(cells.len(), 9);
        assert_eq!(tables(&[2, 5], &[1, 8, 32]).len(), 2, "two chains take turns over three batch sizes");
    }

    #[test]
    fn one_chain_or_one_batch_size_makes_no_square() {
        assert!(tables(&[3], &[1, 8]).is_empty() && tables(&[1, 3], &[8]).is_empty());
    }
}
