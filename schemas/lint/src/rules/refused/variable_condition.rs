//! One condition of a row: what must be known of an environment variable.

use schemas::text::Span;
use serde::Deserialize;

use crate::rules::Context;

/// What must be known of a variable of the launch's environment. It must be set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariableCondition {
    name: String,
    /// Its value is one of these.
    #[serde(default)]
    is: Vec<String>,
    /// Its value is none of these.
    #[serde(default)]
    not: Vec<String>,
}

impl VariableCondition {
    /// The place that shows that it holds; `None` if it does not hold or is not known to.
    pub(super) fn holds(&self, context: &Context<'_>) -> Option<Span> {
        let variable = context.launch.variable(&self.name)?;
        let is_in = |list: &[String]| list.iter().any(|word| word == variable.value.trim());
        ((self.is.is_empty() || is_in(&self.is)) && !is_in(&self.not)).then_some(variable.span)
    }

    #[cfg(test)]
    pub(super) fn has_test(&self) -> bool {
        !self.name.is_empty() && (!self.is.is_empty() || !self.not.is_empty())
    }
}
