//! Tokens produced by a target.

/// A token that the target produced.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducedToken {
    /// Its id.
    pub id: u32,
    /// Its log-probability and the best alternatives, if the request wants them.
    pub logprobs: Option<TokenLogprobs>,
}

/// Log-probabilities at one position, of the target's distribution before temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Log-probability of the produced token.
    pub logprob: f32,
    /// The most probable tokens, best first.
    pub top: Vec<(u32, f32)>,
}
