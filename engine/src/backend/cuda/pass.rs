//! Passes of the target and of the draft over rows: what is launched, in order. Nothing here waits or allocates, so that
//! the same calls run at once or are recorded in a graph.

mod draft;
mod logits;
mod target;
