//! Numeric kernels, each defined by a plain f32 reference on the CPU.
//!
//! Everything in [`mod@reference`] is batch-invariant: an output element is reduced in one fixed
//! order that does not depend on the number of rows, on the other rows or on the threads. A
//! position that is verified as one row of a tree has bitwise the same result as the same position
//! decoded alone, so greedy output with speculation equals greedy output without, and tests may
//! compare with `==`.

pub mod checks;
pub mod device;
pub mod launch;
pub mod memory;
pub mod reference;
