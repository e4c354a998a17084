//! How a token is chosen from the target's logits.

mod distribution;
#[cfg(test)]
mod lossless;

pub use distribution::{choose, logprobs, probabilities};
