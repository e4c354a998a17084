//! Chooses the strengths of the parts of the [`residual`](super::residual) that best predict each
//! measured point from the others.

use super::{
    fit::Physical,
    residual::{ResidualStrength, Residuals},
    sample::SampleSummary,
};

/// Candidate standard deviations of the smooth part.
const SMOOTH: [f64; 6] = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16];

/// Candidate standard deviations of the rows' part, in addition to zero.
const ROWS: [f64; 4] = [0.02, 0.04, 0.08, 0.16];

/// Candidate lengths of the rows' part, from numbers of rows that are hardly correlated at a
/// difference of 5% to those that are up to a factor of two.
const ROW_LENGTHS: [f64; 5] = [0.05, 0.1, 0.2, 0.4, 0.8];

/// Candidate standard deviations of the tree size's part, in addition to zero.
const TREE_SIZES: [f64; 3] = [0.01, 0.02, 0.04];

/// Minimum number of points for choosing the strengths.
const FEWEST: usize = 3;

/// The default with too few points: the physical model may be off by ten percent everywhere, and by
/// as much at any number of rows.
const UNKNOWN: ResidualStrength = ResidualStrength { smooth: 0.1, rows: 0.1, row_length: 0.2, tree_size: 0.0 };

/// Approximately the strengths found for an eight-billion-parameter target on an H200.
pub const USUAL: ResidualStrength = ResidualStrength { smooth: 0.02, rows: 0.03, row_length: 0.05, tree_size: 0.015 };

impl ResidualStrength {
    /// The best strengths for the residuals of a physical model at measured points.
    pub fn from_physical(physical: &Physical, measured: &[SampleSummary]) -> Self {
        if measured.len() < FEWEST {
            return UNKNOWN;
        }
        // A strength for which the points' covariance cannot be factored is not a candidate.
        let score =
            |strength: Self| Some((Residuals::new(physical, measured, strength).ok()?.left_out_score(), strength));
        let best = |candidates: &mut dyn Iterator<Item = Self>| {
            candidates.filter_map(score).min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, strength)| strength)
        };
        // One part after the other: all combinations at once would be several times as many fits.
        let Some(first) = best(&mut without_tree_size()) else { return UNKNOWN };
        best(&mut with_tree_size(first)).unwrap_or(first)
    }
}

fn without_tree_size() -> impl Iterator<Item = ResidualStrength> {
    SMOOTH.into_iter().flat_map(|smooth| {
        let none = ResidualStrength { smooth, rows: 0.0, row_length: 1.0, tree_size: 0.0 };
        let lengths = move |rows| ROW_LENGTHS.map(move |row_length| ResidualStrength { rows, row_length, ..none });
        std::iter::once(none).chain(ROWS.into_iter().flat_map(lengths))
    })
}

/// The same, and variants with a part for the tree size and a smooth part that is no stronger.
fn with_tree_size(first: ResidualStrength) -> impl Iterator<Item = ResidualStrength> {
    let others = SMOOTH.into_iter().filter(move |smooth| *smooth <= first.smooth);
    let all =
        others.flat_map(move |smooth| TREE_SIZES.map(|tree_size| ResidualStrength { smooth, tree_size, ..first }));
    std::iter::once(first).chain(all)
}
