//! What identifies the models of an engine.

/// What identifies the models of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name under which the target is served: the last part of its path.
    pub name: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the draft's files, where there is a draft.
    pub draft: Option<String>,
}
