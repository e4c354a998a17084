//! The parts of a round.

use schemas::tree::TreeShape;

/// A part of a round, as [`RoundTiming`](crate::backend::RoundTiming) divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Grows the trees and lays out the rows that verify them; nothing where nothing is drafted.
    Draft,
    /// The target's pass, and what it accepts.
    Verify,
    /// Compacts the target's cache and extends the draft's.
    Extend,
}

impl Part {
    /// All of them, in their order: a whole round.
    pub const ALL: [Self; 3] = [Self::Draft, Self::Verify, Self::Extend];

    /// Those in which a round does something.
    pub fn of(shape: TreeShape, keep_pending: bool) -> &'static [Self] {
        match (shape.is_off(), keep_pending) {
            (false, _) => &Self::ALL,
            (true, true) => &[Self::Verify, Self::Extend],
            (true, false) => &[Self::Verify],
        }
    }
}
