//! Which drafts of a batch are verified within a budget of rows.

use schemas::tree::TreeShape;

use super::pool::Pool;

/// The places of the drafts of each request that are verified, ascending: of the shape's trees all
/// drafts, or with a budget the best of all requests together. A draft scores at most as high as
/// its parent, so the path to a chosen draft is chosen too. Ties go to earlier requests, and then
/// to earlier places. On a GPU it is the kernel `likeliest_rows`.
///
/// `batch` is the number of requests that the budget is for, at least that of the pools.
pub fn likeliest(pools: &[Pool], shape: TreeShape, batch: usize) -> Vec<Vec<usize>> {
    let mut kept: Vec<Vec<usize>> = pools.iter().map(|pool| pool.kept(shape)).collect();
    if shape.row_budget.is_none() {
        return kept;
    }
    let score = |(request, at): (usize, usize)| pools[request].all()[at].score;
    let mut all: Vec<(usize, usize)> =
        kept.iter().enumerate().flat_map(|(request, kept)| kept.iter().map(move |at| (request, *at))).collect();
    // Scores are never NaN; a stable sort keeps ties in their order.
    all.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
    all.truncate(shape.verified_rows(batch).saturating_sub(pools.len()));
    kept.iter_mut().for_each(Vec::clear);
    all.into_iter().for_each(|(request, at)| kept[request].push(at));
    kept.iter_mut().for_each(|kept| kept.sort_unstable());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Proposal;

    fn chain(scores: &[f32]) -> Pool {
        let mut pool = Pool::default();
        for (at, score) in scores.iter().enumerate() {
            let (token, parent) = (at as u32, at.checked_sub(1));
            pool.push_step([Proposal { token, score: *score, parent, rank: 0 }]);
        }
        pool
    }

    #[test]
    fn rows_go_to_the_best_drafts_of_all_requests_and_to_no_more_than_the_budget() {
        let pools = [chain(&[-0.1, -0.2, -0.3]), chain(&[-1.0, -1.1, -3.0])];
        let chosen = |text: &str, batch| likeliest(&pools, text.parse().expect("a shape"), batch);
        assert_eq!(chosen("3,1,4", 2), [[0, 1, 2], [0, 1, 2]]);
        assert_eq!(chosen("3,1,4~3", 2), [vec![0, 1, 2], vec![0]]);
        assert_eq!(chosen("3,1,4~2", 2), [vec![0, 1], vec![]]);
        // Rows of padding are used too: six of them are four drafts.
        assert_eq!(chosen("3,1,4~2", 3), [vec![0, 1, 2], vec![0]]);
        assert_eq!(chosen("2,1,3~2.5", 2), [vec![0, 1], vec![0]], "only the drafts of the shape");
    }

    #[test]
    fn equal_scores_go_to_earlier_requests() {
        let pools = [chain(&[-1.0, -2.0]), chain(&[-1.0, -2.0])];
        assert_eq!(likeliest(&pools, "2,1,3~1.5".parse().expect("a shape"), 2), [vec![0], vec![]]);
    }
}
