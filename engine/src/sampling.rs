//! How a token is chosen from the target's logits.

mod distribution;
mod random;

pub use distribution::{choose, logprobs};
