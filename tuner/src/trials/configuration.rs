//! A candidate configuration: a tree shape, or a table of shapes by batch, with engine settings.

use std::{cmp::Ordering, fmt};

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

/// One member of the space.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Configuration {
    /// The tree; [`TreeShape::OFF`] for no speculation. With a table, the tree of the largest
    /// batches.
    pub shape: TreeShape,
    /// Trees by running batch, ascending; empty if one tree is used for all batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<TableRow>,
    /// Overrides of the engine settings in the sweep file.
    #[serde(default, skip_serializing_if = "Knobs::are_default")]
    pub knobs: Knobs,
    /// The name of the draft in a sweep of several drafts; empty in a sweep of one, and for no
    /// speculation, which is the same configuration for all drafts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub draft: String,
}

/// A row of a table: the tree for running batches up to this size, and contexts up to this length.
/// The last row also holds for all larger batches, and the last one of a batch for longer contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableRow {
    /// Largest running batch.
    pub max_running_batch: usize,
    /// Largest mean context in tokens; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context: Option<usize>,
    /// The tree shape.
    pub shape: TreeShape,
}

/// Settings whose change restarts the engine; `None` for the value from `[engine]` of the sweep
/// file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Knobs {
    /// Maximum number of running requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running_requests: Option<usize>,
    /// Share of the device's memory for weights and KV cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_fraction_static: Option<Real>,
    /// Attention kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_backend: Option<String>,
    /// Tokens per KV page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<usize>,
    /// Maximum number of prompt tokens in one prefill pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunked_prefill_size: Option<usize>,
    /// Batch sizes for which CUDA graphs are captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture_sizes: Option<Vec<usize>>,
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialLoad {
    /// Closed loop: this many requests are kept running.
    BatchSize(usize),
    /// The same with the requests of a context bucket.
    BatchInContexts(usize, ContextRange),
    /// Open loop: this many requests per second, as a Poisson process.
    RequestRate(Real),
    /// Open loop: at the arrival times of the workload's trace.
    Recorded,
}

/// A bucket of contexts, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContextRange {
    /// They are longer than this.
    pub above: usize,
    /// The longest one; `None` for no limit.
    pub up_to: Option<usize>,
}

/// A number that can be compared and hashed; never NaN if it comes from a checked file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Real(pub f64);

impl Configuration {
    /// A shape with the settings of the sweep file.
    pub fn from_shape(shape: TreeShape) -> Self {
        Self { shape, table: Vec::new(), knobs: Knobs::default(), draft: String::new() }
    }

    /// Whether it can run without a restart on an engine with these settings and this draft: no
    /// speculation runs whichever draft is loaded.
    pub fn runs_with(&self, knobs: &Knobs, draft: &str) -> bool {
        self.knobs == *knobs && (self.draft.is_empty() || self.draft == draft)
    }

    /// Whether it never speculates.
    pub fn is_off(&self) -> bool {
        self.shape.is_off() && self.table.iter().all(|row| row.shape.is_off())
    }

    /// Whether it is one tree with the settings of the sweep file.
    pub fn is_plain(&self) -> bool {
        self.table.is_empty() && self.knobs.are_default()
    }

    /// The tree that runs at a running batch.
    pub fn shape_at(&self, batch: usize) -> TreeShape {
        let row = self.table.iter().find(|row| row.max_running_batch >= batch).or(self.table.last());
        row.map_or(self.shape, |row| row.shape)
    }

    /// Every tree that may run.
    pub fn shapes(&self) -> impl Iterator<Item = TreeShape> + '_ {
        // With a table, `shape` is a tree of one of its rows.
        self.table.iter().map(|row| row.shape).chain(self.table.is_empty().then_some(self.shape))
    }

    /// Ordering key for simplicity, smaller is simpler: changed settings, table rows, nodes, steps,
    /// branches.
    pub fn complexity(&self) -> (usize, usize, usize, usize, usize) {
        let TreeShape { num_steps, topk, num_draft_tokens, .. } = self.shape;
        (self.knobs.words().len(), self.table.len(), num_draft_tokens, num_steps, topk)
    }
}

impl Knobs {
    /// Whether nothing differs from the sweep file's `[engine]`.
    pub fn are_default(&self) -> bool {
        *self == Self::default()
    }

    /// The overrides, each as `name=value`.
    pub fn words(&self) -> Vec<String> {
        let Self {
            max_running_requests,
            mem_fraction_static,
            attention_backend,
            page_size,
            chunked_prefill_size,
            capture_sizes,
        } = self;
        let word = |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
        let number = |value: Option<usize>| value.map(|value| value.to_string());
        [
            word("max_running_requests", number(*max_running_requests)),
            word("mem_fraction_static", mem_fraction_static.map(|share| share.0.to_string())),
            word("attention_backend", attention_backend.clone()),
            word("page_size", number(*page_size)),
            word("chunked_prefill_size", number(*chunked_prefill_size)),
            word("capture_sizes", capture_sizes.as_deref().map(listed)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Batch sizes as one word: "1,2,4".
fn listed(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl TableRow {
    /// A row for any context.
    pub fn for_any_context(max_running_batch: usize, shape: TreeShape) -> Self {
        Self { max_running_batch, max_context: None, shape }
    }
}

impl TrialLoad {
    /// The batch size of a closed loop.
    pub fn batch_size(self) -> Option<usize> {
        match self {
            Self::BatchSize(size) | Self::BatchInContexts(size, _) => Some(size),
            Self::RequestRate(_) | Self::Recorded => None,
        }
    }

    /// The context bucket of its requests; `None` for all requests.
    pub fn contexts(self) -> Option<ContextRange> {
        match self {
            Self::BatchInContexts(_, contexts) => Some(contexts),
            Self::BatchSize(_) | Self::RequestRate(_) | Self::Recorded => None,
        }
    }
}

impl ContextRange {
    /// The buckets between ascending borders, shortest contexts first; none without a border.
    pub fn between(borders: &[usize]) -> Vec<Self> {
        let Some(last) = borders.last() else { return Vec::new() };
        let starts = std::iter::once(0).chain(borders.iter().copied());
        let limited = starts.zip(borders).map(|(above, up_to)| Self { above, up_to: Some(*up_to) });
        limited.chain([Self { above: *last, up_to: None }]).collect()
    }

    /// Whether a context is in the bucket.
    pub fn contains(self, context: f64) -> bool {
        context > self.above as f64 && self.up_to.is_none_or(|up_to| context <= up_to as f64)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.draft.is_empty() {
            write!(formatter, "{} ", self.draft)?;
        }
        match self.table.as_slice() {
            [] if self.shape.is_off() => formatter.write_str("no speculation")?,
            [] => self.shape.fmt(formatter)?,
            rows => {
                write!(formatter, "table {}", rows.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
            }
        }
        self.knobs.words().iter().try_for_each(|word| write!(formatter, " {word}"))
    }
}

impl fmt::Display for TableRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "≤{}", self.max_running_batch)?;
        if let Some(context) = self.max_context {
            write!(formatter, " at context ≤{context}")?;
        }
        write!(formatter, ": {}", self.shape)
    }
}

impl fmt::Display for ContextRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { above: 0, up_to: Some(up_to) } => write!(formatter, "contexts up to {up_to}"),
            // The shortest context of a bucket, since `above` is not in it.
            Self { above, up_to: Some(up_to) } => write!(formatter, "contexts of {} to {up_to}", above + 1),
            Self { above, up_to: None } => write!(formatter, "contexts above {above}"),
        }
    }
}

impl fmt::Display for TrialLoad {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BatchSize(size) => write!(formatter, "batch {size}"),
            Self::BatchInContexts(size, contexts) => write!(formatter, "batch {size}, {contexts}"),
            Self::RequestRate(rate) => write!(formatter, "{} requests/s", rate.0),
            Self::Recorded => formatter.write_str("recorded arrivals"),
        }
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Real {}

impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // Numbers are equal by `total_cmp`, which compares bits: −0 is not 0.
        self.0.to_bits().hash(state);
    }
}
