//! Over how much of a batch's trees the target runs in a round.
//!
//! Which drafts are accepted is told by the tokens behind their parents, so leaves matter only where a walk ends. Where a
//! batch has more rows than the target multiplies in the time in which it reads its weights, it need not run over all.

use schemas::tree::TreeShape;

use super::Traffic;

/// Rows with which it takes as long to multiply 16-bit weights as to read them: about 0.66 PFLOP/s against 4.2 TB/s on an
/// H200, and not far from that on others of its time.
const ROWS_A_READING: usize = 160;

/// Trees of fewer nodes, or of fewer branches a node, may have children behind more than half of their nodes.
const LEAFY: (usize, usize) = (16, 4);

/// Behind which nodes of a tree the target is asked for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// All, at once: its vocabulary is read once.
    All,
    /// Those that the walk comes by, one after the other: it is read for each, and multiplied with few rows.
    OnTheWay,
    /// Those that have children, or the likeliest of these, and then the one where the walk ends: the target runs over no
    /// others, but twice.
    InnerFirst,
}

impl Asking {
    /// That which takes the least time, counted in readings of the target's weights.
    pub fn of(shape: TreeShape, batch: usize, traffic: &Traffic) -> Self {
        let all = traffic.target.max(1) as f64;
        let vocabulary = traffic.target_vocabulary as f64 / all;
        let readings = |rows: usize| rows.max(ROWS_A_READING) as f64 / ROWS_A_READING as f64;
        let (rows, steps) = (batch.saturating_mul(shape.num_draft_tokens), shape.num_steps as f64);
        let on_the_way = (1.0 - vocabulary) * readings(rows) + vocabulary * (steps + 1.0) * readings(batch);
        let mut ways = vec![(readings(rows), Self::All), (on_the_way, Self::OnTheWay)];
        let leafy = shape.num_draft_tokens >= LEAFY.0 && shape.topk >= LEAFY.1;
        if let Some(second_pass) = traffic.second_pass.filter(|_| leafy) {
            let twice = readings(inner_rows(rows)) + readings(batch) + second_pass as f64 / all;
            ways.push((twice, Self::InnerFirst));
        }
        // Among equals the first.
        ways.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).map_or(Self::All, |least| least.1)
    }
}

/// Over how many inner nodes of so many nodes the target runs first, at most: of trees by trained heads two in five have
/// children. Of more the least likely count as leaves.
pub fn inner_rows(nodes: usize) -> usize {
    nodes.div_ceil(2)
}

/// Rows of the target's passes in a round: over all nodes, or over inner nodes and then over one node of each request.
pub fn target_passes(shape: TreeShape, batch: usize, traffic: &Traffic) -> (usize, Option<usize>) {
    let rows = batch.saturating_mul(shape.num_draft_tokens);
    match Asking::of(shape, batch, traffic) {
        Asking::InnerFirst => (inner_rows(rows), Some(batch)),
        Asking::All | Asking::OnTheWay => (rows, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many layers and bytes of weights.
    fn model(layers: u64, target: u64, target_vocabulary: u64) -> Traffic {
        Traffic { target, target_vocabulary, second_pass: Some(layers * (100 << 20)), ..Traffic::default() }
    }

    #[test]
    fn the_target_runs_over_less_than_all_nodes_where_these_are_many() {
        let check = |traffic: Traffic, shape: &str, batch, expected| {
            let shape = shape.parse().expect("a shape");
            assert_eq!(Asking::of(shape, batch, &traffic), expected, "{shape} at {batch}");
            let (first, second) = target_passes(shape, batch, &traffic);
            let nodes = batch * shape.num_draft_tokens;
            let twice = expected == Asking::InnerFirst;
            assert_eq!((first, second), if twice { (nodes / 2, Some(batch)) } else { (nodes, None) });
        };
        let eight_billion = model(32, 15_009_316_864, 1_050_673_152);
        for (shape, batch) in [("0,1,1", 256), ("3,1,4", 64), ("5,8,32", 8), ("8,10,60", 4), ("3,4,8", 64)] {
            check(eight_billion, shape, batch, Asking::All);
        }
        for (shape, batch) in [("5,8,32", 16), ("5,8,32", 64), ("8,10,60", 8), ("5,8,64", 256), ("3,4,16", 64)] {
            check(eight_billion, shape, batch, Asking::InnerFirst);
        }
        check(eight_billion, "5,3,32", 64, Asking::OnTheWay);
        let once = Traffic { second_pass: None, ..eight_billion };
        for (shape, batch) in [("5,8,32", 64), ("8,10,60", 32)] {
            check(once, shape, batch, Asking::OnTheWay);
        }
        // Where weights are few a pass is mostly small kernels.
        let one_billion = model(16, 2_471_493_632, 525_336_576);
        check(one_billion, "5,8,32", 16, Asking::All);
        check(one_billion, "5,8,32", 64, Asking::InnerFirst);
        check(model(6, 54_000_000, 8_000_000), "8,10,60", 64, Asking::OnTheWay);
    }
}
