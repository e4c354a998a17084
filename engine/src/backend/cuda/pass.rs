//! Passes of the target and of the draft over rows: the launches, in order. Nothing here waits or
//! allocates, so the same calls can run eagerly or be captured in a graph.

mod block;
mod draft;
mod layers;
mod logits;
mod model;
mod recurrent;
mod target;

pub use self::block::{BlockBatch, MarkovLevel};
