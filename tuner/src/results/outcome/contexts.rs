//! The table by batch and context, from a table by batch for each bucket of contexts.

use schemas::tuned::PolicyRow;

/// The rows of all buckets, shortest contexts first, in the order of a tuned file. A row of such a
/// file is found by batch first, so each border between batches of one bucket becomes one of all.
pub(super) fn joined(buckets: &[Vec<PolicyRow>]) -> Vec<PolicyRow> {
    let mut borders: Vec<usize> = buckets.iter().flatten().map(|row| row.max_running_batch).collect();
    borders.sort_unstable();
    borders.dedup();
    let row = |border: usize, rows: &Vec<PolicyRow>| {
        let own = rows.iter().find(|row| row.max_running_batch >= border)?;
        Some(PolicyRow { max_running_batch: border, ..own.clone() })
    };
    borders.iter().flat_map(|border| buckets.iter().filter_map(|rows| row(*border, rows))).collect()
}

#[cfg(test)]
mod tests {
    use schemas::{
        tree::TreeShape,
        tuned::{PolicyRow, TunedVerdict},
    };

    use super::joined;

    fn row(max_running_batch: usize, max_context: Option<usize>, shape: TreeShape) -> PolicyRow {
        PolicyRow {
            max_running_batch,
            max_context,
            measured_batch: max_running_batch,
            num_steps: shape.num_steps,
            topk: shape.topk,
            num_draft_tokens: shape.num_draft_tokens,
            row_budget: shape.row_budget,
            output_tokens_per_s: 1.0,
            repeats: Some(3),
            speedup: None,
            speedup_interval: None,
            interval_kind: None,
            interval_level: None,
            accept_length: 1.0,
            verdict: TunedVerdict::Pays,
            reason: String::new(),
        }
    }

    #[test]
    fn borders_of_one_bucket_become_borders_of_all() {
        let (chain, off) = (TreeShape::chain(3), TreeShape::OFF);
        let short = vec![row(4, Some(512), chain), row(16, Some(512), off)];
        let long = vec![row(16, None, chain)];
        let place = |row: &PolicyRow| (row.max_running_batch, row.max_context, row.shape(), row.measured_batch);
        let found: Vec<_> = joined(&[short.clone(), long.clone()]).iter().map(place).collect();
        let expected =
            [(4, Some(512), chain, 4), (4, None, chain, 16), (16, Some(512), off, 16), (16, None, chain, 16)];
        assert_eq!(found, expected);
        // A batch that was measured in one bucket only has only that row.
        let found: Vec<_> = joined(&[short, vec![row(4, None, off)]]).iter().map(place).collect();
        assert_eq!(found, [(4, Some(512), chain, 4), (4, None, off, 4), (16, Some(512), off, 16)]);
        let one = vec![row(1, None, chain), row(8, None, off)];
        assert_eq!(joined(std::slice::from_ref(&one)), one);
    }
}
