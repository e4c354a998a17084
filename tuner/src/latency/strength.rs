//! The strengths of the parts of the [`residual`](super::residual): the ones under which each measured point is predicted
//! best from the others.

use super::{
    fit::Physical,
    residual::{Residuals, Strength},
    sample::Summary,
};

/// Standard deviations of the smooth part that are tried.
const SMOOTH: [f64; 6] = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16];

/// Candidate standard deviations of the rows' part, in addition to zero.
const ROWS: [f64; 4] = [0.02, 0.04, 0.08, 0.16];

/// Lengths of the rows' part that are tried: numbers of rows a twentieth apart hardly tell of each other, or only those
/// that differ by more than a factor of two.
const ROW_LENGTHS: [f64; 5] = [0.05, 0.1, 0.2, 0.4, 0.8];

/// Candidate standard deviations of the tree size's part, in addition to zero.
const TREE_SIZES: [f64; 3] = [0.01, 0.02, 0.04];

/// Minimum number of points for fitting it.
const FEWEST: usize = 3;

/// Where nothing is known: the physical model may be off by ten percent everywhere, and by as much at any number of rows.
const UNKNOWN: Strength = Strength { smooth: 0.1, rows: 0.1, row_length: 0.2, tree_size: 0.0 };

/// About what an eight-billion-parameter target on an H200 turned out to have.
pub const USUAL: Strength = Strength { smooth: 0.02, rows: 0.03, row_length: 0.05, tree_size: 0.015 };

impl Strength {
    /// The best for what a physical model leaves at measured points.
    pub fn of(physical: &Physical, measured: &[Summary]) -> Self {
        if measured.len() < FEWEST {
            return UNKNOWN;
        }
        // A strength for which the points' covariance cannot be factored is not a candidate.
        let score =
            |strength: Self| Some((Residuals::new(physical, measured, strength).ok()?.left_out_score(), strength));
        let best = |candidates: &mut dyn Iterator<Item = Self>| {
            candidates.filter_map(score).min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, strength)| strength)
        };
        let Some(first) = best(&mut without_tree_size()) else { return UNKNOWN };
        best(&mut with_tree_size(first)).unwrap_or(first)
    }
}

fn without_tree_size() -> impl Iterator<Item = Strength> {
    SMOOTH.into_iter().flat_map(|smooth| {
        let none = Strength { smooth, rows: 0.0, row_length: 1.0, tree_size: 0.0 };
        let lengths = move |rows| ROW_LENGTHS.map(move |row_length| Strength { rows, row_length, ..none });
        std::iter::once(none).chain(ROWS.into_iter().flat_map(lengths))
    })
}

/// The same, and with a part of the tree size that takes from the smooth one what is its own.
fn with_tree_size(first: Strength) -> impl Iterator<Item = Strength> {
    let others = SMOOTH.into_iter().filter(move |smooth| *smooth <= first.smooth);
    let all = others.flat_map(move |smooth| TREE_SIZES.map(|tree_size| Strength { smooth, tree_size, ..first }));
    std::iter::once(first).chain(all)
}
