//! The headers of a checkpoint's tensors: names, dtypes and shapes, no data.

use std::collections::BTreeMap;

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorHeader {
    /// As safetensors writes it: `BF16`, `F16`, `F32`, `I64`, …
    pub dtype: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// All tensors of a checkpoint by name, all shards together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorHeaders(pub BTreeMap<String, TensorHeader>);

impl TensorHeaders {
    /// A tensor by the end of its name, so that `fc.weight` finds `model.fc.weight` too.
    pub fn find(&self, suffix: &str) -> Option<&TensorHeader> {
        self.0.get(suffix).or_else(|| {
            self.0
                .iter()
                .find(|(name, _)| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.')))
                .map(|(_, header)| header)
        })
    }
}
