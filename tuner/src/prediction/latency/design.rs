//! Chooses the points to time: few points that best determine the expected queries.

mod unknown;

use std::collections::BTreeSet;

use engine::timing::TimingPoint;
use schemas::tree::TreeShape;

use self::unknown::Unknown;

/// Number of points that suffices for a machine.
pub const MOST_POINTS: usize = 64;

/// Maximum number of candidates to compare: the time grows with the square of it.
const MOST_CANDIDATES: usize = 1536;

/// The queries that the model will have to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignSpace {
    /// The trees of a sweep. No speculation is always among them.
    pub shapes: Vec<TreeShape>,
    /// Batch sizes; ideally those with captured graphs.
    pub batches: Vec<usize>,
    /// Tokens of a request.
    pub contexts: Vec<usize>,
    /// Capacity of the KV cache in tokens: points with more in their batch are skipped. `None` for
    /// no limit.
    pub cache_tokens: Option<usize>,
}

/// At most `count` points of a space, the most informative first. They are its corners (no
/// speculation, the largest tree, the longest chain, the widest tree, each with the smallest batch
/// and context and with the largest of both), then repeatedly the point that minimises the
/// remaining uncertainty of all points. So trees, batches and numbers of rows that many points
/// share are preferred to those at the edges. Deterministic.
pub fn design(space: &DesignSpace, count: usize) -> Vec<TimingPoint> {
    among(&candidates(space), count)
}

/// The same for a given set of candidates.
pub fn among(candidates: &[TimingPoint], count: usize) -> Vec<TimingPoint> {
    let mut chosen: Vec<TimingPoint> = Vec::new();
    let corners = corners(candidates).into_iter().map(|corner| candidates[corner]);
    // A large set is represented by a sample.
    let step = candidates.len().div_ceil(MOST_CANDIDATES).max(1);
    let some: BTreeSet<TimingPoint> = corners.clone().chain(candidates.iter().step_by(step).copied()).collect();
    let some: Vec<TimingPoint> = some.into_iter().collect();
    let mut unknown = Unknown::from_candidates(&some);
    let mut corners = corners.filter_map(|corner| some.binary_search(&corner).ok());
    while chosen.len() < count.min(some.len()) {
        // Corners first, whatever is known: a model that extrapolates from inside them is of no
        // use.
        let untimed = corners.by_ref().find(|at| !chosen.contains(&some[*at]));
        let Some(next) = untimed.or_else(|| unknown.most_telling()) else { break };
        unknown.time(next);
        chosen.push(some[next]);
    }
    chosen
}

/// All points that fit the cache, without duplicates, in ascending order.
fn candidates(space: &DesignSpace) -> Vec<TimingPoint> {
    let shapes: BTreeSet<TreeShape> = space.shapes.iter().copied().chain([TreeShape::OFF]).collect();
    let unique = |numbers: &[usize]| numbers.iter().copied().filter(|number| *number > 0).collect::<BTreeSet<_>>();
    let (batches, contexts) = (unique(&space.batches), unique(&space.contexts));
    let mut points = Vec::new();
    for context in &contexts {
        for batch in &batches {
            let tokens = |shape: &TreeShape| batch.saturating_mul(context.saturating_add(shape.num_draft_tokens));
            let fits = |shape: &&TreeShape| space.cache_tokens.is_none_or(|limit| tokens(shape) <= limit);
            let point = |shape: &TreeShape| TimingPoint::full(*shape, *batch, *context);
            points.extend(shapes.iter().filter(fits).map(point));
        }
    }
    points
}

/// Indices of the corners, the most informative first; may contain duplicates.
fn corners(points: &[TimingPoint]) -> Vec<usize> {
    let best = |key: &dyn Fn(&TimingPoint) -> [i64; 4]| (0..points.len()).max_by_key(|at| key(&points[*at]));
    let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    let kinds: [fn(&TreeShape) -> [usize; 2]; 4] = [
        |shape| [usize::from(shape.is_off()), 0],
        |shape| [shape.num_draft_tokens, shape.topk],
        |shape| if shape.topk == 1 { [shape.num_steps, 0] } else { [0, 0] },
        |shape| [shape.topk, shape.num_steps],
    ];
    let mut corners = Vec::new();
    // Both ends of the range: the largest batch with the longest context, and the smallest ones.
    for (batch_sign, context_sign) in [(1, 1), (-1, -1)] {
        for kind in kinds {
            corners.extend(best(&|point| {
                let [first, second] = kind(&point.shape);
                let (batch, context) = (batch_sign * number(point.batch), context_sign * number(point.context));
                [number(first), number(second), batch, context]
            }));
        }
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> DesignSpace {
        let shapes =
            ["1,1,2", "3,1,4", "7,1,8", "3,4,8", "5,8,32", "8,10,60"].map(|text| text.parse().expect("a shape"));
        DesignSpace {
            shapes: shapes.to_vec(),
            batches: vec![1, 2, 4, 8, 16, 32, 64],
            contexts: vec![128, 512, 2048],
            cache_tokens: None,
        }
    }

    #[test]
    fn corners_are_in_and_nothing_is_twice() {
        let points = design(&space(), 30);
        assert_eq!(points.len(), 30);
        assert_eq!(points.iter().collect::<BTreeSet<_>>().len(), 30);
        assert_eq!(points, design(&space(), 30));
        let has = |shape: &str, batch, context| {
            let shape = shape.parse().expect("a shape");
            assert!(
                points.contains(&TimingPoint::full(shape, batch, context)),
                "({shape}) {batch} {context}: {points:?}"
            );
        };
        for (batch, context) in [(1, 128), (64, 2048)] {
            has("0,1,1", batch, context);
            has("8,10,60", batch, context);
            has("7,1,8", batch, context);
        }
        let batches: BTreeSet<usize> = points.iter().map(|point| point.batch).collect();
        assert!(batches.len() >= 5, "{batches:?}");
        assert!(points.iter().any(|point| point.context == 512));
        for shape in space().shapes {
            assert!(points.iter().any(|point| point.shape == shape), "nothing of {shape}");
        }
    }

    #[test]
    fn fewer_points_are_the_first_of_more() {
        let points = design(&space(), 30);
        assert_eq!(design(&space(), 20), points[..20]);
        let again = among(&candidates(&space()), 30);
        assert_eq!(points, again);
    }

    #[test]
    fn what_many_points_have_in_common_is_timed() {
        // Trees of four sizes that differ in steps and topk, and a chain of another size.
        let trees = [1, 2, 3, 4, 5, 6].into_iter().flat_map(|steps| {
            [4, 8].into_iter().flat_map(move |topk| [4, 8, 16, 32].map(|nodes| TreeShape::new(steps, topk, nodes)))
        });
        let shapes: Vec<TreeShape> = trees.flatten().chain([TreeShape::chain(2)]).collect();
        let space = DesignSpace { shapes, batches: vec![1, 4, 16, 64], contexts: vec![500], cache_tokens: None };
        let points = design(&space, 32);
        for nodes in [4, 8, 16, 32] {
            let batches: BTreeSet<usize> =
                points.iter().filter(|point| point.shape.num_draft_tokens == nodes).map(|point| point.batch).collect();
            assert_eq!(batches.len(), 4, "{nodes} nodes: {batches:?}");
        }
        let chains = points.iter().filter(|point| point.shape == TreeShape::chain(2)).count();
        assert!(chains <= 4, "{points:?}");
    }

    #[test]
    fn of_very_many_points_some_stand_for_all() {
        let space = DesignSpace { batches: (1..=64).collect(), contexts: vec![100, 200, 400, 800], ..space() };
        let points = design(&space, 12);
        assert_eq!(points.len(), 12);
        assert!(points.iter().any(|point| (point.batch, point.context, point.shape.is_off()) == (64, 800, true)));
    }

    #[test]
    fn never_more_than_there_is_or_fits() {
        let mut small = DesignSpace { batches: vec![1, 4, 4], contexts: vec![64], ..space() };
        assert_eq!(design(&small, 100).len(), 2 * 7);
        small.cache_tokens = Some(100);
        let points = design(&small, 100);
        assert!(points.iter().all(|point| point.batch == 1 && point.shape.num_draft_tokens <= 36), "{points:?}");
        assert_eq!(points.len(), 6);
        assert_eq!(design(&DesignSpace { batches: Vec::new(), ..space() }, 5), []);
        assert_eq!(design(&space(), 0), []);
        assert_eq!(design(&space(), 3).len(), 3);
    }
}
