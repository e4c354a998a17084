//! What the host drafts for a round, as all ranks get it.

use crate::backend::{DraftTree, Drafted, LookedUp};

/// A [`Drafted`] that owns its trees or chains.
pub enum OwnedDrafts {
    Here,
    Joined(Vec<LookedUp>),
    ByHost(Vec<DraftTree>),
}

impl From<Drafted<'_>> for OwnedDrafts {
    fn from(drafted: Drafted<'_>) -> Self {
        match drafted {
            Drafted::Here => Self::Here,
            Drafted::Joined(chains) => Self::Joined(chains.to_vec()),
            Drafted::ByHost(trees) => Self::ByHost(trees.to_vec()),
        }
    }
}

impl OwnedDrafts {
    /// A reference to it.
    pub fn drafted(&self) -> Drafted<'_> {
        match self {
            Self::Here => Drafted::Here,
            Self::Joined(chains) => Drafted::Joined(chains),
            Self::ByHost(trees) => Drafted::ByHost(trees),
        }
    }
}
