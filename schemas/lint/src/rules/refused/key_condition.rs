//! One condition of a row of vLLM: what must be known of a key of the speculative configuration.

use launch::VllmSpeculation;
use schemas::text::Span;
use serde::Deserialize;
use serde_json::Value as Json;

/// What must be known of a key. Without a test it must be given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyCondition {
    key: String,
    /// Its value is one of these.
    #[serde(default)]
    is: Vec<Json>,
    /// Its value is none of these.
    #[serde(default)]
    not: Vec<Json>,
    /// The key may be absent too; the place is that of the configuration then.
    #[serde(default)]
    or_absent: bool,
    /// Its value is above this number.
    above: Option<i64>,
    /// Its value contains none of these.
    #[serde(default)]
    no_parts: Vec<String>,
}

impl KeyCondition {
    /// The place that shows that it holds; `None` if it does not hold or is not known to.
    pub(super) fn holds(&self, config: &VllmSpeculation) -> Option<Span> {
        let Some(key) = config.keys.get(&self.key).filter(|_| config.gives(&self.key)) else {
            return (self.or_absent && !config.may_give(&self.key)).then_some(config.span);
        };
        let value = key.value.as_ref()?;
        let is_above = self.above.is_none_or(|least| config.integer(&self.key).is_some_and(|value| value > least));
        let lacks_parts = self.no_parts.is_empty()
            || value.as_str().is_some_and(|text| !self.no_parts.iter().any(|part| text.contains(part.as_str())));
        let holds =
            (self.is.is_empty() || self.is.contains(value)) && !self.not.contains(value) && is_above && lacks_parts;
        holds.then_some(key.span)
    }
}
