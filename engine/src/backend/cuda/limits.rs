//! Limits shared by several parts of the backend.

/// Rows of logits in memory at once: tokens of a larger batch are chosen piece by piece.
pub const LOGIT_ROWS: usize = 256;
/// Rows whose attention runs in one launch: bounds the memory for their splits.
pub const ATTENTION_ROWS: usize = 512;
/// Rows of latent attention whose absorbed queries are in memory at once.
pub const LATENT_ROWS: usize = 256;
/// The same if each row may use all [`SPLITS`].
pub const LATENT_ROWS_IN_SPLITS: usize = 32;
/// Maximum number of alternatives with log-probabilities.
pub const MOST_CHOICES: usize = 20;
/// Words that describe a token: its log-probability, the best alternatives, and their
/// log-probabilities.
pub const DESCRIBED_WORDS: usize = 1 + 2 * MOST_CHOICES;
/// Number of staging buffers: one for each round in flight, and one for the round that is being
/// read.
pub const STAGING_SLOTS: usize = 3;
/// Maximum number of parts into which attention splits a long list of keys. Constant, since the
/// bits of a result depend on it.
pub const SPLITS: usize = 16;
/// Maximum number of rounds that are launched and not collected.
pub const ROUNDS_IN_FLIGHT: usize = 2;

const _: () = assert!(MOST_CHOICES <= kernels::launch::MOST_SELECTED);
