//! The space of a sweep: tree shapes and settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LARGEST, SystemKind, each_within};
use crate::{
    toml_file::FieldError,
    tree::{NodeSource, TreeShape},
};

/// The tree shapes to try: all combinations of three lists, and explicit shapes. Combinations that
/// are not valid trees are skipped; an invalid explicit shape is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Space {
    /// Draft steps.
    pub num_steps: Vec<usize>,
    /// Branches per step.
    pub topk: Vec<usize>,
    /// Nodes that the target verifies, root included. With topk 1 it is always num_steps + 1,
    /// whatever is given here.
    pub num_draft_tokens: Vec<usize>,
    /// Tuned files whose tables by running batch compete as one configuration each.
    pub tables: Vec<String>,
    /// Additional shapes, each written as "num_steps,topk,num_draft_tokens".
    pub shapes: Vec<String>,
    /// The shape that runs now, written likewise: always measured, so that it is known whether
    /// another one is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
}

/// Engine settings to try in addition to tree shapes, instead of the values in `[engine]`. An empty
/// list leaves its setting unchanged; several lists are combined. Each combination costs a restart
/// of the engine, so all shapes run within it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KnobLists {
    /// Maximum number of running requests.
    pub max_running_requests: Vec<usize>,
    /// Fractions of the device's memory for weights and KV cache.
    pub mem_fraction_static: Vec<f64>,
    /// Attention kernels: auto, rows, tiles; for a server, its engine's names.
    pub attention_backend: Vec<String>,
    /// Tokens per KV page.
    pub page_size: Vec<usize>,
    /// Maximum number of prompt tokens per prefill pass.
    pub chunked_prefill_size: Vec<usize>,
    /// Lists of batch sizes for which CUDA graphs are captured, each in place of `capture_sizes` in
    /// `[engine]`.
    pub capture_sizes: Vec<Vec<usize>>,
}

impl Space {
    /// Checks the lists for drafts of this source.
    pub(super) fn check(&self, nodes: NodeSource) -> Result<(), FieldError> {
        each_within(&["space", "num_steps"], &self.num_steps, TreeShape::LARGEST)?;
        each_within(&["space", "topk"], &self.topk, TreeShape::LARGEST)?;
        each_within(&["space", "num_draft_tokens"], &self.num_draft_tokens, TreeShape::LARGEST)?;
        // Lists without any combination would look like a sweep that found nothing.
        if self.num_steps.is_empty() != self.topk.is_empty() {
            return Err(FieldError::at(&["space"], "num_steps and topk go together: give both lists or none of them"));
        }
        if self.num_draft_tokens.is_empty() && self.topk.iter().any(|topk| *topk > 1) {
            return Err(FieldError::at(&["space"], "num_draft_tokens is missing: topk above 1 needs it"));
        }
        if self.num_steps.is_empty() && !self.num_draft_tokens.is_empty() {
            return Err(FieldError::at(
                &["space", "num_draft_tokens"],
                "num_draft_tokens has no effect without num_steps and topk",
            ));
        }
        for (at, shape) in self.shapes.iter().enumerate() {
            let wrong =
                |reason: String| FieldError::at(&["space", "shapes"], format!("{shape:?}: {reason}")).element(at);
            nodes.parse(shape).map_err(|error| wrong(error.to_string()))?;
        }
        if let Some(shape) = &self.current {
            let wrong = |reason: String| FieldError::at(&["space", "current"], format!("{shape:?}: {reason}"));
            nodes.parse(shape).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(())
    }

    /// Upper bound of the number of shapes, including the baselines.
    pub(super) fn most_shapes(&self) -> usize {
        let combinations = self.num_steps.len().saturating_mul(self.topk.len());
        let combinations = combinations.saturating_mul(self.num_draft_tokens.len().max(1));
        combinations.saturating_add(self.shapes.len()).saturating_add(self.tables.len()).saturating_add(3)
    }
}

impl KnobLists {
    pub(super) fn check(&self, system: SystemKind) -> Result<(), FieldError> {
        each_within(&["knobs", "max_running_requests"], &self.max_running_requests, LARGEST)?;
        each_within(&["knobs", "page_size"], &self.page_size, LARGEST)?;
        each_within(&["knobs", "chunked_prefill_size"], &self.chunked_prefill_size, LARGEST)?;
        for (at, sizes) in self.capture_sizes.iter().enumerate() {
            let key = &["knobs", "capture_sizes"];
            if sizes.is_empty() {
                return Err(FieldError::at(key, "an empty list: every list needs at least one batch size").element(at));
            }
            each_within(key, sizes, LARGEST).map_err(|error| error.element(at))?;
        }
        let share = |share: &f64| *share > 0.0 && *share <= 1.0;
        if let Some(at) = self.mem_fraction_static.iter().position(|value| !share(value)) {
            let reason = "expected a number above 0 and at most 1";
            return Err(FieldError::at(&["knobs", "mem_fraction_static"], reason).element(at));
        }
        const BACKENDS: [&str; 3] = ["auto", "rows", "tiles"];
        // Other engines have their own names.
        let ours = system == SystemKind::Spectune;
        let unknown = |name: &String| ours && !BACKENDS.contains(&name.as_str());
        if let Some(at) = self.attention_backend.iter().position(unknown) {
            return Err(
                FieldError::word(&["knobs", "attention_backend"], &self.attention_backend[at], &BACKENDS).element(at)
            );
        }
        Ok(())
    }

    /// Number of combinations of the lists, including that of `[engine]` alone.
    pub(super) fn count(&self) -> usize {
        let lengths = [
            self.max_running_requests.len(),
            self.mem_fraction_static.len(),
            self.attention_backend.len(),
            self.page_size.len(),
            self.chunked_prefill_size.len(),
            self.capture_sizes.len(),
        ];
        lengths.iter().fold(1, |product: usize, length| product.saturating_mul((*length).max(1))).saturating_add(1)
    }
}
