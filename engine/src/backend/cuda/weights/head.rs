//! The matrix with which a draft proposes tokens.

use kernels::device::{Buffer, Slice};

use super::TargetWeights;
use crate::spec::VocabularySource;

/// The matrix with which a draft proposes tokens.
#[derive(Clone, Copy)]
pub struct ProposalHead<'a> {
    pub weight: Slice<'a>,
    /// Width of its inputs.
    pub hidden: usize,
    /// Number of tokens that it proposes.
    pub vocabulary: usize,
    /// Number of its rows on this rank.
    pub rows: usize,
    /// Target tokens of these, int32.
    pub tokens: Option<Slice<'a>>,
}

/// The head of a draft that has its own matrix, or uses its embedding or the target's head.
pub fn proposal_head<'a>(
    own: Option<&'a Buffer>,
    embedding: Option<&'a Buffer>,
    tokens: Option<&'a Buffer>,
    hidden: usize,
    (source, vocabulary, rows): (VocabularySource, usize, usize),
    target: &'a TargetWeights,
) -> ProposalHead<'a> {
    let weight = match (own, source) {
        (Some(own), _) => own.slice(),
        (None, VocabularySource::Embedding) => target.head_of(embedding.unwrap_or(&target.embedding), hidden),
        (None, _) => target.head(),
    };
    ProposalHead { weight, hidden, vocabulary, rows, tokens: tokens.map(Buffer::slice) }
}
