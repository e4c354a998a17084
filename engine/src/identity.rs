//! Hashes that identify the models of an engine.

/// Name and hashes of the models of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name under which the target is served: the last part of its path.
    pub name: String,
    /// Hash of the target's files and of their quantisation at load time.
    pub target: String,
    /// The same for the draft, if there is one.
    pub draft: Option<String>,
    /// A note on the quantisation of the target's weights, if any: speculation is lossless with respect to these.
    pub quantised: Option<String>,
}
