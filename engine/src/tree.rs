//! The dynamic draft tree of EAGLE-2/3, as pure functions on scores: no tensor, no device, no request.

mod draft_tree;
mod expansion;
mod walk;

pub use draft_tree::DraftTree;
pub use expansion::Expansion;
pub use walk::walk;
