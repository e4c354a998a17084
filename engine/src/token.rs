//! Tokens that a target produced.

/// A token that the target produced.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducedToken {
    /// Its id.
    pub id: u32,
    /// Its log-probability and the best alternatives, where the request asks for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// Log-probabilities at one position, of the target's distribution before temperature and filters.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the produced token.
    pub logprob: f32,
    /// The best tokens, best first.
    pub top: Vec<(u32, f32)>,
}
