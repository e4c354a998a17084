//! How often the results of a race are looked at before measuring ends, and what that costs.

use crate::statistics::student::{normal_above, quantile_above};

/// Repeats after which a comparison counts as undecidable.
pub const MOST_REPEATS: usize = 40;

/// When the number of repeats is decided.
///
/// The order is that of the widths of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looks {
    /// Before the first trial: intervals hold once.
    #[default]
    Planned,
    /// As [`Planned`](Self::Planned), where each configuration needs a start of a server, which
    /// measures all its repeats: differences between starts are not in the intervals (see
    /// [`Starts`](super::Starts)).
    PlannedStarts,
    /// Once more after the first look, if it left comparisons open, for a number of repeats that is
    /// decided beforehand.
    Twice,
    /// As [`Every`](Self::Every), where each configuration needs a start of a server, which
    /// measures several repeats. What a start keeps to itself cannot be seen within it, so the
    /// median of its repeats counts as one.
    EveryStart {
        /// Repeats per start.
        repeats: usize,
    },
    /// After each repeat, from the results so far: intervals hold at all looks together.
    Every,
}

/// Repeats at which the boundary for every look is the tightest relative to one look, in units of
/// its weight.
const WEIGHT: f64 = 1.0;

impl Looks {
    /// Whether there is no greatest number of looks.
    pub fn are_unlimited(self) -> bool {
        matches!(self, Self::Every | Self::EveryStart { .. })
    }

    /// Number of repeats that count as one.
    pub fn repeats_per_block(self) -> usize {
        match self {
            Self::Planned | Self::PlannedStarts | Self::Twice | Self::Every => 1,
            Self::EveryStart { repeats } => repeats.max(1),
        }
    }

    /// The number of standard errors that a mean of `blocks` differences exceeds on one side with
    /// at most the given probability, where the error has this many degrees of freedom.
    ///
    /// For every look this is the boundary of the normal mixture (Robbins 1970; Howard, Ramdas,
    /// McAuliffe & Sekhon 2021, eq. 14): a sum of n differences of variance 1 ever exceeds √((n +
    /// w) · ln((n + w) / (w·ε²))) in absolute value with probability ε at most. It needs no
    /// greatest number of looks. The boundary is taken from the normal to Student's distribution at
    /// the same tail probability (Jennison & Turnbull 2000, section 11.5), which is approximate; a
    /// simulation among the tests checks the result.
    pub fn reach(self, probability: f64, blocks: f64, freedom: f64) -> f64 {
        match self {
            Self::Planned | Self::PlannedStarts => quantile_above(probability, freedom),
            // Two looks share the probability of error (Bonferroni).
            Self::Twice => quantile_above(probability / 2.0, freedom),
            Self::Every | Self::EveryStart { .. } => {
                // A confidence sequence of a normal mixture: valid at all looks at once, and wider
                // for it.
                let two_sided = 2.0 * probability;
                let ratio = WEIGHT / blocks.max(1.0);
                let normal = ((1.0 + ratio) * ((1.0 + 1.0 / ratio).ln() - 2.0 * two_sided.ln())).sqrt();
                quantile_above(normal_above(normal), freedom)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    fn normal(random: &mut StdRng) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    #[test]
    fn a_boundary_for_every_look_is_wider_but_not_much() {
        for (blocks, freedom) in [(3.0, 14.0), (6.0, 35.0), (20.0, 130.0), (60.0, 400.0)] {
            let [once, always] = [Looks::Planned, Looks::Every].map(|looks| looks.reach(0.0025, blocks, freedom));
            assert!(once < always && always < 1.75 * once, "{blocks}: {once} {always}");
        }
    }

    #[test]
    fn it_holds_at_all_of_a_hundred_looks_together() {
        let mut random = StdRng::seed_from_u64(2);
        let mut ever = |looks: Looks| {
            let reach: Vec<(f64, f64)> =
                (1..=100).map(f64::from).map(|blocks| (blocks, looks.reach(0.01, blocks, 1e6))).collect();
            let left = |_: &usize| {
                let mut sum = 0.0;
                reach.iter().any(|(blocks, reach)| {
                    sum += normal(&mut random);
                    (sum / blocks.sqrt()).abs() > *reach
                })
            };
            (0..2000).filter(left).count()
        };
        let (once, always) = (ever(Looks::Planned), ever(Looks::Every));
        assert!(always <= 40, "{always} of 2,000 at a level of 2%");
        assert!(once > 100, "{once}: a boundary for one look does not hold at many");
    }
}
