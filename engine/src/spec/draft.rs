//! A draft: what proposes tokens. It describes itself as a source of nodes; what is built on it
//! knows nothing else.

use schemas::tree::NodeSource;

use super::{BlockSpec, LayerSpec, RecurrentSpec, TargetSpec, TensorSpec, TextSpec, VocabularySource};

/// A draft, by how it fills the pool of proposals.
#[derive(Clone, Debug, PartialEq)]
pub enum DraftSpec {
    /// One layer that reads its own state step by step: EAGLE heads and MTP layers.
    Recurrent(RecurrentSpec),
    /// A pass over all positions of a block at once: DFLASH and DSPARK heads.
    Block(BlockSpec),
    /// A whole small model with a cache of its own, which reads nothing of the target: SGLang's
    /// STANDALONE.
    Model(TargetSpec),
    /// Look-ups in texts, without weights: n-gram, suffix, SGLang's trie.
    Text(TextSpec),
}

impl DraftSpec {
    /// What fills the pool of its trees, and so what a shape means.
    pub fn nodes(&self) -> NodeSource {
        match self {
            Self::Recurrent(_) | Self::Model(_) => NodeSource::Beams,
            Self::Block(block) => NodeSource::Block(block.block),
            Self::Text(text) => text.nodes(),
        }
    }

    /// SGLang's name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Recurrent(recurrent) => recurrent.algorithm(),
            Self::Block(block) => block.algorithm(),
            Self::Model(_) => "STANDALONE",
            Self::Text(text) => text.algorithm(),
        }
    }

    /// The target's layers before which the stream is captured; empty if the draft reads the final
    /// state, or nothing.
    pub fn captured(&self) -> &[usize] {
        match self {
            Self::Recurrent(recurrent) => recurrent.captured(),
            Self::Block(block) => &block.features.at,
            Self::Model(_) | Self::Text(_) => &[],
        }
    }

    /// Width of its stream.
    pub fn hidden(&self) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.hidden(),
            Self::Block(block) => block.hidden(),
            Self::Model(model) => model.hidden,
            Self::Text(_) => 0,
        }
    }

    /// Values of the state that it keeps of a request between rounds, in addition to its cache.
    pub fn state_width(&self) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.hidden(),
            Self::Model(model) => model.hidden,
            Self::Block(_) | Self::Text(_) => 0,
        }
    }

    /// Number of positions by which the place of a token in its cache is ahead of a head's: a head
    /// keeps what it makes of a token and of the state before it at the position of that state, a
    /// whole model at the token's own position.
    pub fn ahead(&self) -> usize {
        usize::from(matches!(self, Self::Model(_)))
    }

    /// Values kept per row of a target of this width, for the draft to read.
    pub fn feature_width(&self, target_hidden: usize) -> usize {
        match self {
            Self::Recurrent(recurrent) => recurrent.feature_width(target_hidden),
            Self::Block(block) => block.features.width(),
            Self::Model(_) | Self::Text(_) => 0,
        }
    }

    /// Whether it reads the target's final state instead of captured layers.
    pub fn sees_final(&self) -> bool {
        matches!(self, Self::Recurrent(recurrent) if recurrent.sees_final())
    }

    /// The matrix that proposes tokens; the number of tokens that it proposes; and the number of
    /// its rows. Look-ups have none, of no rows.
    pub fn head(&self) -> (VocabularySource, usize, usize) {
        match self {
            Self::Recurrent(RecurrentSpec { head, vocabulary, head_rows, .. })
            | Self::Block(BlockSpec { head, vocabulary, head_rows, .. }) => (*head, *vocabulary, *head_rows),
            Self::Model(model) => {
                let head = if model.tied { VocabularySource::Embedding } else { VocabularySource::Own };
                (head, model.vocabulary, model.head_rows)
            }
            Self::Text(_) => (VocabularySource::Target, 0, 0),
        }
    }

    /// The tokens of the target that it proposes, if not all.
    pub fn tokens(&self) -> Option<&[u32]> {
        match self {
            Self::Recurrent(RecurrentSpec { tokens, .. }) | Self::Block(BlockSpec { tokens, .. }) => tokens.as_deref(),
            Self::Model(_) | Self::Text(_) => None,
        }
    }

    /// The tensors that its checkpoint contains, for a target with this vocabulary size.
    pub fn tensors(&self, target_vocabulary: usize) -> Vec<TensorSpec> {
        match self {
            Self::Recurrent(recurrent) => recurrent.tensors(target_vocabulary).all().into_iter().cloned().collect(),
            Self::Block(block) => block.tensors(target_vocabulary).all().into_iter().cloned().collect(),
            Self::Model(model) => model.tensors().all().into_iter().cloned().collect(),
            Self::Text(_) => Vec::new(),
        }
    }

    /// Like this, but without the map of its tokens, in which drafts of one description may differ.
    #[must_use]
    pub fn without_tokens(&self) -> Self {
        match self {
            Self::Recurrent(recurrent) => Self::Recurrent(RecurrentSpec { tokens: None, ..recurrent.clone() }),
            Self::Block(block) => Self::Block(BlockSpec { tokens: None, ..block.clone() }),
            Self::Model(model) => Self::Model(model.clone()),
            Self::Text(text) => Self::Text(*text),
        }
    }

    /// Its decoder layers.
    pub fn layers(&self) -> Vec<&LayerSpec> {
        match self {
            Self::Recurrent(recurrent) => vec![&recurrent.layer],
            Self::Block(block) => block.layers.iter().map(|layer| &layer.layer).collect(),
            Self::Model(model) => model.layers.iter().collect(),
            Self::Text(_) => Vec::new(),
        }
    }

    /// The same with all matrices in the type that the engine computes in.
    #[must_use]
    pub fn in_plain(&self) -> Self {
        match self {
            Self::Recurrent(recurrent) => Self::Recurrent(recurrent.in_plain()),
            Self::Block(block) => Self::Block(block.in_plain()),
            Self::Model(model) => Self::Model(model.in_plain()),
            Self::Text(text) => Self::Text(*text),
        }
    }

    /// Whether weights of the other draft can replace its own while requests run: what is kept of a
    /// sequence has the same layout and meaning.
    pub fn keeps_the_same(&self, other: &Self) -> bool {
        // The format of weights does not change what is kept of a sequence.
        match (self.in_plain(), other.in_plain()) {
            // The layer decides what the cache holds, the features what is kept of the target's
            // rows: a head or a map of tokens may differ.
            (Self::Recurrent(one), Self::Recurrent(other)) => {
                (one.layer, one.features) == (other.layer, other.features)
            }
            (Self::Block(one), Self::Block(other)) => one == BlockSpec { tokens: one.tokens.clone(), ..other },
            (Self::Model(one), Self::Model(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => one == other,
            _ => false,
        }
    }
}
