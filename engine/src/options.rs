//! How an engine is set up.

use std::path::PathBuf;

use schemas::tree::TreeShape;

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if there is one that works, else the CPU.
    #[default]
    Auto,
    /// The CPU reference.
    Cpu,
    /// This CUDA device.
    Cuda(usize),
}

/// Which tree shape runs at which batch size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapePolicy {
    /// `(largest running batch, shape)`, ascending; the last one also holds for all larger batches. Never empty.
    steps: Vec<(usize, TreeShape)>,
}

/// All that an engine is told.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// The target's folder.
    pub model_path: PathBuf,
    /// The draft's folder; `None` for no speculation.
    pub draft_model_path: Option<PathBuf>,
    /// The algorithm's name as in SGLang (`EAGLE`, `EAGLE3`, `NEXTN`); checked against the draft's tensors.
    pub algorithm: Option<String>,
    /// Which tree at which batch.
    pub policy: ShapePolicy,
    /// Where.
    pub device: DeviceChoice,
    /// Dtype of weights and activations (`auto`, `float32`, …); the CPU computes in float32 whatever is stored.
    pub dtype: String,
    /// Longest sequence; `None` takes the model's.
    pub context_length: Option<usize>,
    /// Most requests running together.
    pub max_running_requests: usize,
    /// Tokens a KV page.
    pub page_size: usize,
    /// Share of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Most prompt tokens a step.
    pub chunked_prefill_size: usize,
    /// Batch sizes for which graphs are captured; ignored by the CPU.
    pub capture_sizes: Vec<usize>,
}

impl ShapePolicy {
    /// The same shape at every batch size.
    pub fn fixed(shape: TreeShape) -> Self {
        Self { steps: vec![(usize::MAX, shape)] }
    }

    /// A table of `(largest running batch, shape)`; `None` if it is empty.
    pub fn table(mut steps: Vec<(usize, TreeShape)>) -> Option<Self> {
        steps.sort_by_key(|(batch, _)| *batch);
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The shape for a running batch.
    pub fn shape(&self, batch: usize) -> TreeShape {
        let at = self.steps.partition_point(|(largest, _)| *largest < batch).min(self.steps.len() - 1);
        self.steps[at].1
    }

    /// All shapes that can come up.
    pub fn shapes(&self) -> impl Iterator<Item = TreeShape> + '_ {
        self.steps.iter().map(|(_, shape)| *shape)
    }

    /// Whether any of them speculates.
    pub fn speculates(&self) -> bool {
        self.shapes().any(|shape| !shape.is_off())
    }
}
