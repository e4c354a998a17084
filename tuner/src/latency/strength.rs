//! How strong the two parts of the [`residual`](super::residual) are: those under which each measured point is told best
//! from the others.

use serde::{Deserialize, Serialize};

use super::{
    fit::Physical,
    residual::{Place, Residuals},
    sample::Summary,
};

/// Standard deviations of the smooth part that are tried.
const SMOOTH: [f64; 6] = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16];

/// Standard deviations of the rows' part that are tried, beside none.
const ROWS: [f64; 4] = [0.02, 0.04, 0.08, 0.16];

/// Lengths of the rows' part that are tried: numbers of rows a twentieth apart hardly tell of each other, or only those
/// that differ by more than a factor of two.
const ROW_LENGTHS: [f64; 5] = [0.05, 0.1, 0.2, 0.4, 0.8];

/// Fewest points that tell anything of it.
const FEWEST: usize = 3;

/// Where nothing is known: the physical model may be off by ten percent everywhere, and by as much at any number of rows.
const UNKNOWN: Strength = Strength { smooth: 0.1, rows: 0.1, row_length: 0.2 };

/// Of a Gaussian process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strength {
    /// Standard deviation of the smooth part, as a logarithm of time.
    smooth: f64,
    /// Standard deviation of the rows' part in a round that were linear layers alone, as a logarithm of time.
    rows: f64,
    /// Distance in logarithms of rows at which the rows' part hardly tells of others.
    row_length: f64,
}

impl Strength {
    /// The best for what a physical model leaves at measured points.
    pub fn of(physical: &Physical, measured: &[Summary]) -> Self {
        if measured.len() < FEWEST {
            return UNKNOWN;
        }
        // A strength under which the points' covariance cannot be factored is none.
        let score =
            |strength: Self| Some((Residuals::new(physical, measured, strength).ok()?.left_out_score(), strength));
        let best = candidates().filter_map(score).min_by(|one, other| one.0.total_cmp(&other.0));
        best.map_or(UNKNOWN, |(_, strength)| strength)
    }

    /// Covariance of what the physical model leaves at two places.
    pub fn covariance(&self, one: &Place, other: &Place) -> f64 {
        self.smooth.powi(2) * one.similarity(other) + self.rows.powi(2) * one.common_rows(other, self.row_length)
    }

    /// Whether its numbers can be.
    pub fn is_sound(&self) -> bool {
        [self.smooth, self.rows, self.row_length].iter().all(|value| value.is_finite()) && self.row_length > 0.0
    }
}

fn candidates() -> impl Iterator<Item = Strength> {
    SMOOTH.into_iter().flat_map(|smooth| {
        let lengths = move |rows| ROW_LENGTHS.map(move |row_length| Strength { smooth, rows, row_length });
        let none = Strength { smooth, rows: 0.0, row_length: 1.0 };
        std::iter::once(none).chain(ROWS.into_iter().flat_map(lengths))
    })
}
