//! Compares the maximum sequence length of the draft with that of the launch.

use schemas::{flags::Key, text::Span};

use crate::rules::{Context, versions::*};

/// The variable that allows a context longer than the config's.
pub(super) const OVERWRITE: &str = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN";

/// Where that variable's default became false (PR #9388).
pub(super) const DEFAULT_CHANGED: Edge = Edge::new(V0_5_0, V0_5_2);

/// A draft that is shorter than the context.
pub(super) struct Short {
    /// Maximum sequence length of the draft, in tokens.
    pub draft: usize,
    /// Maximum sequence length of the launch, in tokens.
    pub context: usize,
    /// Whether SGLang continues anyway.
    pub allowed: bool,
    /// Whether the author allows it with the variable, and gives no length.
    pub is_by_variable: bool,
    /// The setting that requests it: the context length, or the variable.
    pub request: Option<Span>,
}

impl Short {
    /// The draft and the context, if both are known and the draft is shorter.
    pub fn from_context(context: &Context<'_>) -> Option<Self> {
        let config = context.draft_config()?;
        let known = config.states_context_length() || !context.draft?.partial;
        let request = context.span(Key::ContextLength);
        if !known || (request.is_none() && !context.is_absent(Key::ContextLength)) {
            return None;
        }
        let (draft, length) = (config.derived_context_length(), context.resolved.context_length.as_ref()?.value);
        if draft >= length {
            return None;
        }
        let (allowed, variable) = match context.launch.environment.get(OVERWRITE) {
            Some(variable) => {
                let value = variable.value.known()?.trim().to_ascii_lowercase();
                (matches!(value.as_str(), "1" | "true" | "yes" | "y" | "t" | "on"), Some(variable.span))
            }
            None if !context.launch.lacks_variable(OVERWRITE) => return None,
            None => (DEFAULT_CHANGED.side(context.version()) == Side::Before, None),
        };
        let is_by_variable = request.is_none() && variable.is_some();
        Some(Self { draft, context: length, allowed, is_by_variable, request: request.or(variable) })
    }
}
