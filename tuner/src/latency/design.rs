//! Which points to time: few, and so that they span what will be asked.

use std::collections::{BTreeMap, BTreeSet};

use engine::timing::TimingPoint;
use schemas::tree::TreeShape;

/// Points that tell enough of a machine: about as many as a sweep of a few dozen shapes has numbers of verified rows.
pub const MOST_POINTS: usize = 64;

/// Numbers of verified rows that are taken up for each point that is chosen for its distance.
const ROWS_IN_TURN: usize = 2;

/// What will be asked of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The trees of a sweep. No speculation is always among them.
    pub shapes: Vec<TreeShape>,
    /// Batch sizes; best those that graphs are captured for.
    pub batches: Vec<usize>,
    /// Tokens of a request.
    pub contexts: Vec<usize>,
    /// Tokens that the KV cache holds: points with more in their batch are left out. `None` for no limit.
    pub cache_tokens: Option<usize>,
}

/// At most `count` points of a space: its corners first (no speculation, the largest tree, the longest chain, the widest
/// tree, each with the smallest and largest batch and the shortest and longest context). Then by turns [`ROWS_IN_TURN`]
/// numbers of verified rows that have no point yet, those first that most of the space's points have, since what a library
/// makes of a number of rows is not told by its neighbours; and the point that is farthest from all chosen ones, in
/// logarithms of batch, rows, draft rows and context and in steps. The same for the same space, ordered by context and
/// batch, so that prompts are read once for all shapes timed on them.
pub fn design(space: &Space, count: usize) -> Vec<TimingPoint> {
    let mut chosen = Chosen::of(candidates(space), count);
    corners(&chosen.candidates).into_iter().for_each(|corner| chosen.add(corner));
    let mut untimed = row_counts(&chosen.candidates).into_iter();
    while !chosen.is_complete() {
        let of_rows: Vec<usize> =
            untimed.by_ref().filter_map(|rows| chosen.first_of(rows)).take(ROWS_IN_TURN).collect();
        of_rows.into_iter().for_each(|point| chosen.add(point));
        chosen.farthest().into_iter().for_each(|point| chosen.add(point));
    }
    let mut points: Vec<TimingPoint> = chosen.indices.iter().map(|at| chosen.candidates[*at]).collect();
    points.sort_unstable();
    points
}

/// Candidates of which some are chosen.
struct Chosen {
    candidates: Vec<TimingPoint>,
    features: Vec<[f64; 5]>,
    /// Square of the distance of each candidate to the nearest chosen one; below zero for those.
    distances: Vec<f64>,
    indices: Vec<usize>,
    most: usize,
}

impl Chosen {
    fn of(candidates: Vec<TimingPoint>, most: usize) -> Self {
        let features = normalized(&candidates);
        let distances = vec![f64::INFINITY; candidates.len()];
        let most = most.min(candidates.len());
        Self { candidates, features, distances, indices: Vec::new(), most }
    }

    fn is_complete(&self) -> bool {
        self.indices.len() >= self.most
    }

    /// Adds a candidate, unless it is there already or there are enough.
    fn add(&mut self, next: usize) {
        if self.is_complete() || self.indices.contains(&next) {
            return;
        }
        let at = self.features[next];
        for (distance, from) in self.distances.iter_mut().zip(&self.features) {
            let square = from.iter().zip(&at).map(|(one, other)| (one - other).powi(2)).sum();
            *distance = distance.min(square);
        }
        self.distances[next] = -1.0;
        self.indices.push(next);
    }

    /// The candidate that is farthest from all chosen ones.
    fn farthest(&self) -> Option<usize> {
        self.farthest_of(|_| true)
    }

    /// Of the candidates with so many verified rows the farthest, unless one of them is chosen.
    fn first_of(&self, rows: usize) -> Option<usize> {
        let has = |at: &usize| verified_rows(&self.candidates[*at]) == rows;
        if self.indices.iter().any(has) { None } else { self.farthest_of(has) }
    }

    fn farthest_of(&self, of: impl Fn(&usize) -> bool) -> Option<usize> {
        let nearer = |one: &usize, other: &usize| self.distances[*one].total_cmp(&self.distances[*other]);
        (0..self.candidates.len()).filter(of).max_by(nearer)
    }
}

/// Numbers of verified rows, those first that most candidates have.
fn row_counts(candidates: &[TimingPoint]) -> Vec<usize> {
    let mut uses: BTreeMap<usize, usize> = BTreeMap::new();
    candidates.iter().for_each(|point| *uses.entry(verified_rows(point)).or_default() += 1);
    let mut rows: Vec<(usize, usize)> = uses.into_iter().collect();
    rows.sort_by_key(|(rows, uses)| (std::cmp::Reverse(*uses), *rows));
    rows.into_iter().map(|(rows, _)| rows).collect()
}

fn verified_rows(point: &TimingPoint) -> usize {
    point.batch.saturating_mul(point.shape.num_draft_tokens)
}

/// All points that fit the cache, each once, in ascending order.
fn candidates(space: &Space) -> Vec<TimingPoint> {
    let shapes: BTreeSet<TreeShape> = space.shapes.iter().copied().chain([TreeShape::OFF]).collect();
    let unique = |numbers: &[usize]| numbers.iter().copied().filter(|number| *number > 0).collect::<BTreeSet<_>>();
    let (batches, contexts) = (unique(&space.batches), unique(&space.contexts));
    let mut points = Vec::new();
    for context in &contexts {
        for batch in &batches {
            let tokens = |shape: &TreeShape| batch.saturating_mul(context.saturating_add(shape.num_draft_tokens));
            let fits = |shape: &&TreeShape| space.cache_tokens.is_none_or(|limit| tokens(shape) <= limit);
            let point = |shape: &TreeShape| TimingPoint { context: *context, batch: *batch, shape: *shape };
            points.extend(shapes.iter().filter(fits).map(point));
        }
    }
    points
}

/// Indices of the corners, the most telling ones first; some come more than once.
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
    for (batch_sign, context_sign) in [(1, 1), (-1, -1), (1, -1), (-1, 1)] {
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

/// Coordinates from 0 to 1 in each quantity.
fn normalized(points: &[TimingPoint]) -> Vec<[f64; 5]> {
    let mut features: Vec<[f64; 5]> = points
        .iter()
        .map(|point @ TimingPoint { context, batch, shape }| {
            let rows = verified_rows(point);
            let drafts = if shape.is_off() { 0 } else { batch.saturating_mul(shape.topk) };
            let [context, batch, rows, drafts] = [*context, *batch, rows, drafts].map(|count| (count as f64).ln_1p());
            [context, batch, rows, drafts, shape.num_steps as f64]
        })
        .collect();
    for axis in 0..5 {
        let values = || features.iter().map(|one| one[axis]);
        let (min, max) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let width = if max > min { max - min } else { 1.0 };
        features.iter_mut().for_each(|one| one[axis] = (one[axis] - min) / width);
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        let shapes =
            ["1,1,2", "3,1,4", "7,1,8", "3,4,8", "5,8,32", "8,10,60"].map(|text| text.parse().expect("a shape"));
        Space {
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
            assert!(points.contains(&TimingPoint { context, batch, shape }), "({shape}) {batch} {context}: {points:?}");
        };
        for (batch, context) in [(1, 128), (64, 2048), (64, 128), (1, 2048)] {
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
    fn every_number_of_rows_is_timed_where_there_is_room_and_else_the_usual_ones() {
        let rows = |points: &[TimingPoint]| points.iter().map(verified_rows).collect::<BTreeSet<_>>();
        let all = candidates(&space());
        // 1 to 64 without speculation, times 2, 4, 8, 32 and 60: powers of two but for 60's.
        assert_eq!(rows(&all).len(), 12 + 7);
        assert_eq!(rows(&design(&space(), 32)), rows(&all));
        let few = rows(&design(&space(), 20));
        assert!(row_counts(&all)[..5].iter().all(|usual| few.contains(usual)), "{few:?}");
        assert_eq!(row_counts(&all)[..2], [32, 64], "six shapes have them at some batch");
    }

    #[test]
    fn never_more_than_there_is_or_fits() {
        let mut small = Space { batches: vec![1, 4, 4], contexts: vec![64], ..space() };
        assert_eq!(design(&small, 100).len(), 2 * 7);
        small.cache_tokens = Some(100);
        let points = design(&small, 100);
        assert!(points.iter().all(|point| point.batch == 1 && point.shape.num_draft_tokens <= 36), "{points:?}");
        assert_eq!(points.len(), 6);
        assert_eq!(design(&Space { batches: Vec::new(), ..space() }, 5), []);
        assert_eq!(design(&space(), 0), []);
        assert_eq!(design(&space(), 3).len(), 3);
    }
}
