//! The dynamic draft tree of EAGLE-2/3, as pure functions on scores: no tensor, no device, no request.

mod draft_tree;
mod expansion;
mod simulation;
mod walk;

pub use draft_tree::DraftTree;
pub use expansion::Expansion;
pub use simulation::{simulated_count, simulated_walk};
pub use walk::walk;
