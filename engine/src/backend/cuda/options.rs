//! What to load onto a device, and how.

use kernels::device::Element;
use schemas::tree::TreeShape;

use super::{machine::AttentionKernels, weights::WeightSource};
use crate::{
    backend::{VerifyPlan, state_places::StateOptions},
    spec::{DraftSpec, PromptLookup, TargetSpec},
};

/// Options of a [`CudaBackend`](super::CudaBackend).
#[derive(Clone, Debug, PartialEq)]
pub struct CudaOptions {
    /// Type of weights, activations and caches.
    pub element: Element,
    /// Maximum number of running requests.
    pub slots: usize,
    /// Tokens per page.
    pub page_size: usize,
    /// Maximum sequence length.
    pub context_length: usize,
    /// Share of the device's memory for weights and caches.
    pub mem_fraction_static: f64,
    /// Maximum number of pages, whatever the memory.
    pub max_pages: usize,
    /// Maximum number of prompt tokens per pass.
    pub prefill_chunk: usize,
    /// Tree shapes that may be requested; memory for them is reserved.
    pub shapes: Vec<TreeShape>,
    /// Whether to run without graphs.
    pub disable_cuda_graph: bool,
    /// Whether reductions use an order that depends neither on the batch nor on the number of rows.
    pub batch_invariant: bool,
    /// Attention kernels; `None` chooses by element type and mode.
    pub attention: Option<AttentionKernels>,
    /// How trees are verified; `None` for the fastest choice.
    pub verify_plan: Option<VerifyPlan>,
    /// Whether the draft's trees are joined with chains that are looked up.
    pub joins_chains: bool,
    /// The rule by which the device looks up drafts; `None` if the host does, or none are looked
    /// up.
    pub looks_up: Option<PromptLookup>,
    /// Whether ranks split the draft's layer; `None` for the faster choice.
    pub split_draft: Option<bool>,
    /// Memory for the states of sequences.
    pub states: StateOptions,
}

/// The models to load: descriptions, and sources of the tensors.
pub struct Models<'a> {
    /// The target.
    pub target: (TargetSpec, WeightSource<'a>),
    /// The draft.
    pub draft: Option<(DraftSpec, WeightSource<'a>)>,
}
