//! How a token is chosen from the target's logits.

mod distribution;
#[cfg(test)]
mod lossless;
mod random;

pub use distribution::{choose, logprobs, probabilities};
pub use random::uniform;
