//! Graphs with places that hold no request.
//!
//! A graph runs the linear layers of all of its places, whatever they hold. Attention reads only
//! the tokens that are there, but an empty place also leaves a part of the device idle: where the
//! blocks of the other places do not fill it, their tokens take as long as they would in a full
//! graph. How much of a place's attention an empty one costs is one number of a machine between 0
//! (tokens alone count) and 1 (the longest request counts), which is fitted to timed rounds.

use engine::timing::TimingPoint;
use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use super::{Point, RoundModel, TimedSample};

/// Graphs of fewer places are not timed with empty ones: requests rarely leave many of them empty.
const FEWEST_PLACES: usize = 8;
/// Share of the places of a timed graph that hold a request.
const FILLED: f64 = 0.7;
/// Number of graphs that are timed with empty places, for each of two trees.
const MOST_GRAPHS: usize = 4;
/// Number of costs of an empty place that are compared, evenly from 0 to 1.
const COSTS: usize = 101;

/// The requests of a round in their graph.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filling {
    /// Places of the graph: the batch, padded to a capture size.
    pub places: usize,
    /// Places that hold a request; a mean over rounds need not be a whole number.
    pub requests: f64,
    /// Tokens of each of these requests in the cache, on average.
    pub context: f64,
}

impl Filling {
    /// A graph whose places all hold a request.
    pub fn full(places: usize, context: f64) -> Self {
        Self { places, requests: places as f64, context }
    }

    /// Tokens of a place in the cache, the empty ones included.
    pub fn tokens_per_place(&self) -> f64 {
        self.context * self.requests / self.places.max(1) as f64
    }

    /// The full graph that takes as long, if an empty place costs this share of a place's
    /// attention.
    fn full_point(&self, shape: TreeShape, empty_place: f64) -> Point {
        let empty = (self.places as f64 - self.requests).max(0.0);
        let context = self.tokens_per_place() + self.context * empty_place * empty / self.places.max(1) as f64;
        Point { shape, batch: self.places, context }
    }
}

impl RoundModel {
    /// The full graph that takes as long as a partly filled one.
    pub fn full_point(&self, shape: TreeShape, filling: Filling) -> Point {
        filling.full_point(shape, self.empty_place)
    }

    /// The time in ms of a round in a graph that may be partly filled.
    pub fn filled_ms(&self, shape: TreeShape, filling: Filling) -> f64 {
        self.ms(&self.full_point(shape, filling))
    }

    /// Share of a place's attention that an empty place costs, from 0 to 1.
    pub fn empty_place(&self) -> f64 {
        self.empty_place
    }

    /// Fits the cost of an empty place to rounds in partly filled graphs; without any, an empty
    /// place costs nothing.
    pub(super) fn fit_empty_place(&mut self, partly_filled: &[&TimedSample]) {
        let misfit = |empty_place: f64| -> f64 {
            let error = |sample: &&TimedSample| {
                let point = sample.filling().full_point(sample.point.shape, empty_place);
                Some((self.ms(&point) / sample.mean_ms()?).ln().powi(2))
            };
            partly_filled.iter().filter_map(error).sum()
        };
        let costs = (0..COSTS).map(|at| at as f64 / (COSTS - 1) as f64);
        let fitted = costs.map(|cost| (cost, misfit(cost))).min_by(|one, other| one.1.total_cmp(&other.1));
        self.empty_place = fitted.filter(|_| !partly_filled.is_empty()).map_or(0.0, |(cost, _)| cost);
    }
}

/// Points of partly filled graphs beside these points of full ones: at their longest context, where
/// attention takes most of a round, without speculation and with the largest tree.
pub fn partly_filled(full: &[TimingPoint]) -> Vec<TimingPoint> {
    let Some(context) = full.iter().map(|point| point.context).max() else { return Vec::new() };
    let largest = full.iter().map(|point| point.shape).max_by_key(|shape| shape.num_draft_tokens);
    let of_shape = |shape: TreeShape| {
        let wide = full.iter().filter(|one| one.shape == shape && one.context == context && one.batch >= FEWEST_PLACES);
        let mut places: Vec<usize> = wide.map(|one| one.batch).collect();
        places.sort_unstable();
        places.dedup();
        let step = places.len().div_ceil(MOST_GRAPHS).max(1);
        let partly = move |places: usize| {
            let requests = (FILLED * places as f64).round() as usize;
            TimingPoint { empty: places - requests, ..TimingPoint::full(shape, requests, context) }
        };
        places.into_iter().rev().step_by(step).map(partly).collect::<Vec<_>>()
    };
    let mut shapes = vec![TreeShape::OFF];
    shapes.extend(largest.filter(|shape| !shape.is_off()));
    shapes.into_iter().flat_map(of_shape).collect()
}

#[cfg(test)]
mod tests {
    use engine::spec::ModelCost;

    use super::*;
    use crate::prediction::latency::LatencyMachine;

    fn machine() -> LatencyMachine {
        let cost = ModelCost { target_cache_row: 1 << 20, element: 2, ..ModelCost::default() };
        LatencyMachine { cost, bandwidth: 1e12, few_rows: 32 }
    }

    /// Rounds of a made-up machine: 5 ms, and 1 µs for each token of a place.
    fn ms(places: usize, tokens_per_place: f64) -> f64 {
        5.0 + places as f64 * tokens_per_place / 1e3
    }

    fn samples(empty_place: f64) -> Vec<TimedSample> {
        let points =
            [8, 16, 32, 64].into_iter().flat_map(|batch| [250.0, 500.0, 1000.0].map(|context| (batch, context)));
        let of = |(batch, context)| {
            TimedSample::full(Point { shape: TreeShape::OFF, batch, context }, vec![ms(batch, context); 9])
        };
        let partly = [16, 64].map(|places| {
            let (empty, context) = (places / 4, 1000.0);
            let filling = Filling { places, requests: (places - empty) as f64, context };
            let time = ms(places, filling.full_point(TreeShape::OFF, empty_place).context);
            TimedSample {
                empty,
                ..TimedSample::full(Point { shape: TreeShape::OFF, batch: places, context }, vec![time; 9])
            }
        });
        points.map(of).chain(partly).collect()
    }

    #[test]
    fn the_cost_of_an_empty_place_is_found_from_rounds_of_partly_filled_graphs() {
        for expected in [0.0, 0.4, 1.0] {
            let model = RoundModel::fit(machine(), &samples(expected)).expect("it fits");
            assert!((model.empty_place() - expected).abs() < 0.1, "{expected}: {}", model.empty_place());
            // Elsewhere too.
            let filling = Filling { places: 32, requests: 20.0, context: 800.0 };
            let (found, expected) = (
                model.filled_ms(TreeShape::OFF, filling),
                ms(32, filling.full_point(TreeShape::OFF, expected).context),
            );
            assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
        }
    }

    #[test]
    fn rounds_of_full_graphs_alone_leave_empty_places_free() {
        let full: Vec<TimedSample> = samples(1.0).into_iter().filter(|sample| sample.empty == 0).collect();
        let model = RoundModel::fit(machine(), &full).expect("it fits");
        assert!(model.empty_place().abs() < 1e-12);
        assert_eq!(
            model,
            RoundModel { empty_place: 0.0, ..RoundModel::fit(machine(), &samples(1.0)).expect("it fits") }
        );
    }

    #[test]
    fn partly_filled_graphs_are_timed_at_the_longest_context_of_timed_ones() {
        let tree: TreeShape = "3,1,4".parse().expect("a shape");
        let full: Vec<TimingPoint> = [1, 8, 64]
            .into_iter()
            .flat_map(|batch| {
                [TreeShape::OFF, tree]
                    .into_iter()
                    .flat_map(move |shape| [100, 900].map(|c| TimingPoint::full(shape, batch, c)))
            })
            .collect();
        let partly = partly_filled(&full);
        let found: Vec<_> = partly.iter().map(|one| (one.shape, one.batch, one.empty, one.context)).collect();
        let off = TreeShape::OFF;
        assert_eq!(found, [(off, 45, 19, 900), (off, 6, 2, 900), (tree, 45, 19, 900), (tree, 6, 2, 900)]);
        assert_eq!(partly_filled(&[]), []);
        assert_eq!(partly_filled(&full[..4]), [], "graphs of one place");
    }
}
