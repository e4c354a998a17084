//! Which drafts of a batch are verified within a budget of rows.

use schemas::tree::TreeShape;

use super::pool::Pool;

/// The drafts of the largest values, `drafts` of all requests together: for each request some of
/// the places that it offers, ascending. Of each request they are offered in ascending order with
/// their values; no draft is worth more than its parent, so the path to a chosen draft is chosen
/// too. Ties go to earlier requests, and then to earlier places.
pub fn likeliest(offered: &[Vec<(usize, f64)>], drafts: usize) -> Vec<Vec<usize>> {
    let of_request = |(request, own): (usize, &'_ Vec<(usize, f64)>)| -> Vec<(usize, usize, f64)> {
        own.iter().map(|(at, value)| (request, *at, *value)).collect()
    };
    let mut all: Vec<(usize, usize, f64)> = offered.iter().enumerate().flat_map(of_request).collect();
    // A stable sort keeps ties in their order.
    all.sort_by(|a, b| b.2.total_cmp(&a.2));
    let mut chosen = vec![Vec::new(); offered.len()];
    all.into_iter().take(drafts).for_each(|(request, at, _)| chosen[request].push(at));
    chosen.iter_mut().for_each(|chosen: &mut Vec<usize>| chosen.sort_unstable());
    chosen
}

/// The places of the drafts of each request that are verified, ascending: of the shape's trees all
/// drafts, or with a budget those of the best scores. On a GPU it is the kernel `list_nodes`.
///
/// `batch` is the number of requests that the budget is for, at least that of the pools.
pub fn verified_drafts(pools: &[Pool], shape: TreeShape, batch: usize) -> Vec<Vec<usize>> {
    let kept = pools.iter().map(|pool| pool.kept(shape));
    if shape.row_budget.is_none() {
        return kept.collect();
    }
    let offered = kept.zip(pools).map(|(kept, pool)| {
        let score = |at: usize| (at, f64::from(pool.all()[at].score));
        kept.into_iter().map(score).collect()
    });
    likeliest(&offered.collect::<Vec<_>>(), shape.verified_rows(batch).saturating_sub(pools.len()))
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
        let chosen = |text: &str, batch| verified_drafts(&pools, text.parse().expect("a shape"), batch);
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
        assert_eq!(verified_drafts(&pools, "2,1,3~1.5".parse().expect("a shape"), 2), [vec![0], vec![]]);
    }
}
