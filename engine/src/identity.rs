//! Hashes that identify the models of an engine.

/// What identifies the models of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name under which the target is served: the last part of its path.
    pub name: String,
    /// Hash of the target's files, and how they are quantised when they are loaded.
    pub target: String,
    /// The same of the draft's, where there is a draft.
    pub draft: Option<String>,
    /// What is said of the target's weights where they are quantised: speculation is lossless against these.
    pub quantised: Option<String>,
}
