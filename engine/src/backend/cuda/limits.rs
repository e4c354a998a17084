//! Limits shared by several parts of the backend.

/// Rows of logits that are in memory at once: a larger batch is chosen from piece by piece.
pub const LOGIT_ROWS: usize = 256;
/// Rows whose attention runs in one launch: bounds what its splits keep.
pub const ATTENTION_ROWS: usize = 512;
/// Rows of latent attention whose absorbed queries are in memory at once.
pub const LATENT_ROWS: usize = 256;
/// The same where each row may have all [`SPLITS`].
pub const LATENT_ROWS_IN_SPLITS: usize = 32;
/// Alternatives of log-probabilities, at most.
pub const MOST_CHOICES: usize = 20;
/// Words that are said of a token: its log-probability, the best alternatives, and theirs.
pub const DESCRIBED_WORDS: usize = 1 + 2 * MOST_CHOICES;
/// Number of staging buffers for rounds: one for each round in flight, and one for the round that is being read.
pub const STAGING_SLOTS: usize = 3;
/// Parts into which attention splits a long list of keys. A constant: the bits of a result depend on it.
pub const SPLITS: usize = 16;
/// Rounds that may be launched and not collected.
pub const ROUNDS_IN_FLIGHT: usize = 2;

const _: () = assert!(MOST_CHOICES <= kernels::launch::MOST_SELECTED);
