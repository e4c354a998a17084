//! The dynamic draft tree of EAGLE-2/3, as pure functions of scores, independent of tensors, devices and requests.

mod draft_tree;
mod expansion;
mod growth;
mod pool;
mod simulation;
mod trail;
mod walk;

pub use draft_tree::DraftTree;
pub use expansion::Expansion;
pub use growth::{BeamRow, grow};
pub use pool::Pool;
pub use simulation::{simulated_count, simulated_walk};
pub use trail::{Wanted, accepted, offered};
pub use walk::walk;
