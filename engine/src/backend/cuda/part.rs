//! The parts of a round.

use schemas::tree::TreeShape;

/// A part of a round, as [`RoundTiming`](crate::backend::RoundTiming) divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoundPart {
    /// Grows the trees and lays out the rows of the verify pass; nothing without speculation.
    Draft,
    /// The target's pass, and acceptance.
    Verify,
    /// The first half of [`Verify`](Self::Verify): the target's pass over all nodes, and its token
    /// after each of them.
    Choose,
    /// The second half: acceptance along these tokens.
    Accept,
    /// Compacts the target's cache and extends the draft's.
    Extend,
}

impl RoundPart {
    /// A whole round.
    pub const ALL: [Self; 3] = [Self::Draft, Self::Verify, Self::Extend];

    /// The parts that do something in a round of this shape.
    pub fn for_shape(shape: TreeShape, keep_pending: bool) -> &'static [Self] {
        match (shape.is_off(), keep_pending) {
            (false, _) => &Self::ALL,
            (true, true) => &[Self::Verify, Self::Extend],
            (true, false) => &[Self::Verify],
        }
    }

    /// The parts before the host chooses tokens for some requests, and the parts after it.
    pub fn around_host(shape: TreeShape, keep_pending: bool) -> [&'static [Self]; 2] {
        match (shape.is_off(), keep_pending) {
            (false, _) => [&[Self::Draft, Self::Choose], &[Self::Accept, Self::Extend]],
            (true, true) => [&[Self::Choose], &[Self::Accept, Self::Extend]],
            (true, false) => [&[Self::Choose], &[Self::Accept]],
        }
    }
}
