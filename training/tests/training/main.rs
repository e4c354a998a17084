//! Training on the demo pair and on tiny heads of every kind.

mod common;
mod forward;
mod gradients;
mod pytorch;
mod run;
mod stitch;
