//! Draft trees, as pure functions of scores, independent of tensors, devices and requests. Beams
//! (EAGLE-2/3) and the depths of a block fill a pool of proposals; choosing and accepting a tree
//! know only the pool.

mod draft_tree;
mod expansion;
mod growth;
mod levels;
mod likeliest;
mod looked_up;
mod pool;
mod simulation;
mod trail;
mod walk;

pub use draft_tree::DraftTree;
pub use expansion::Expansion;
pub use growth::{BeamRow, grow, largest};
pub use levels::Levels;
pub use likeliest::{likeliest, verified_drafts};
pub use looked_up::{LookedUp, joined};
pub use pool::{Pool, Proposal};
pub use simulation::{simulated_count, simulated_walk};
pub use trail::{RequiredTree, accepted, offered};
pub use walk::walk;
