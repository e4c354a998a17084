//! Bytes that a pass reads and operations that it computes, as a function of its number of rows.
//!
//! Dense weights are read once, for any number of rows. Of the routed experts, only those are read
//! that at least one row chooses, so a pass over more rows reads more. Embeddings are looked up,
//! not read, unless they are also the vocabulary head.

use std::ops::Add;

use schemas::tree::{NodeSource, TreeShape};
use serde::{Deserialize, Serialize};

use super::{
    AttentionTensors, BlockSpec, DraftSpec, LayerSpec, RecurrentSpec, Role, TargetSpec, TensorSpec, VocabularySource,
    ffn::share_touched,
};

/// Bytes read and floating-point operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes of weights read from memory.
    pub bytes: f64,
    /// A multiplication and an addition count as two operations.
    pub flops: f64,
}

/// The cost of passes over some weights, for any number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassCost {
    /// Bytes that every pass reads.
    pub bytes: u64,
    /// Number of weights that every row is multiplied with, except routed experts.
    pub weights: u64,
    /// Routed experts; `None` if there are none.
    pub experts: Option<ExpertCost>,
}

/// The cost of routed experts, summed over layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpertCost {
    /// Bytes of all experts.
    pub bytes: u64,
    /// Number of weights of all experts.
    pub weights: u64,
    /// The share of the experts that a row chooses: experts per token / experts.
    pub chosen: f64,
}

/// The costs of the passes of a round, over target and draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCost {
    /// A pass of the target, including its vocabulary head.
    pub target: PassCost,
    /// Bytes of the target's vocabulary head, included in `target`.
    pub target_vocabulary: u64,
    /// Cost of a second pass of the target in addition to reading weights, in bytes that could be
    /// read in that time; `None` if the target never runs twice in a round.
    #[serde(default)]
    pub second_pass: Option<u64>,
    /// Bytes per token of the context in the target's caches.
    pub target_cache_row: u64,
    /// The part of these that belongs to layers with a window, of which a pass reads no more than
    /// the window; `None` if no layer has one.
    #[serde(default)]
    pub target_windowed: Option<WindowedCache>,
    /// Bytes of the target's state per running request, which a round reads and writes once each;
    /// zero if caches are all that it keeps.
    #[serde(default)]
    pub target_state: u64,
    /// What fills the pool of the draft's trees: how many passes of how many rows a shape takes.
    #[serde(default)]
    pub nodes: NodeSource,
    /// A pass of the draft, including its vocabulary head; zero without a draft.
    pub draft: PassCost,
    /// The draft's work on accepted tokens: for beams in addition to a pass over them (reducing
    /// captured layers), for a block all of it (keys and values).
    pub draft_extension: PassCost,
    /// Additional cost of each depth of a block, with the nodes of that depth as rows: correcting
    /// their logits.
    #[serde(default)]
    pub draft_level: PassCost,
    /// Bytes per token of the context in the draft's cache.
    pub draft_cache_row: u64,
    /// The part of [`draft_cache_row`](Self::draft_cache_row) that belongs to layers with a window.
    #[serde(default)]
    pub draft_windowed: Option<WindowedCache>,
    /// Bytes of one value.
    pub element: u64,
}

/// The share of their routed experts that passes read, where it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountedShares {
    /// Of the target, per layer and round.
    pub target: Option<f64>,
    /// Of the draft, per layer and pass.
    pub draft: Option<f64>,
}

/// Caches of layers with a sliding window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowedCache {
    /// Bytes per token, over all such layers.
    pub row: u64,
    /// Number of tokens that a row sees; the mean over these layers, weighted by bytes.
    pub window: usize,
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, flops: self.flops + other.flops }
    }
}

impl PassCost {
    /// The cost of tensors, each of which either is read by every pass or belongs to a routed
    /// expert. `chosen` is the share of experts that a row chooses.
    fn from_tensors<'a>(tensors: impl IntoIterator<Item = &'a TensorSpec>, element: usize, chosen: f64) -> Self {
        let mut cost = Self::default();
        let mut experts = ExpertCost { bytes: 0, weights: 0, chosen };
        for tensor in tensors {
            let (bytes, weights) = (tensor.bytes(element), tensor.values());
            // Norm weights and biases are not multiplied like matrices.
            let weights = if tensor.shape.len() > 1 { weights } else { 0 };
            match tensor.role {
                Role::Embedding => {}
                Role::Expert(_) => {
                    experts.bytes += bytes;
                    experts.weights += weights;
                }
                _ => {
                    cost.bytes += bytes;
                    cost.weights += weights;
                }
            }
        }
        cost.experts = (experts.bytes > 0).then_some(experts);
        cost
    }

    /// The cost of a layer.
    pub fn of_layer(layer: &LayerSpec, element: usize) -> Self {
        let chosen = layer.ffn.experts().map_or(0.0, |experts| experts.per_token as f64 / experts.experts as f64);
        Self::from_tensors(layer.tensors("").all(), element, chosen)
    }

    /// The cost of a matrix that is read as a whole.
    fn for_matrix(outputs: usize, inputs: usize, element: usize) -> Self {
        let weights = outputs as u64 * inputs as u64;
        Self { bytes: weights * element as u64, weights, experts: None }
    }

    /// Bytes that a pass over this many rows reads, if rows choose experts uniformly and
    /// independently.
    pub fn bytes(&self, rows: usize) -> f64 {
        self.bytes as f64 + self.experts.map_or(0.0, |experts| experts.bytes as f64 * experts.touched(rows))
    }

    /// The routed experts' part of the bytes that a pass over this many rows reads.
    pub fn expert_bytes(&self, rows: usize) -> f64 {
        self.bytes(rows) - self.bytes as f64
    }

    /// Bytes of all weights, including experts that no row chooses.
    pub fn all_bytes(&self) -> u64 {
        self.bytes + self.experts.map_or(0, |experts| experts.bytes)
    }

    /// Floating-point operations of a pass over this many rows.
    pub fn flops(&self, rows: usize) -> f64 {
        let experts = self.experts.map_or(0.0, |experts| experts.weights as f64 * experts.chosen);
        2.0 * rows as f64 * (self.weights as f64 + experts)
    }

    /// Bytes and operations of a pass over this many rows.
    pub fn at(&self, rows: usize) -> Cost {
        self.reading(rows, None)
    }

    /// The same if the pass reads this share of the routed experts; `None` if rows choose uniformly
    /// and independently.
    pub fn reading(&self, rows: usize, share: Option<f64>) -> Cost {
        let bytes = match (self.experts, share) {
            (Some(experts), Some(share)) => self.bytes as f64 + experts.bytes as f64 * share,
            _ => self.bytes(rows),
        };
        Cost { bytes, flops: self.flops(rows) }
    }
}

impl Add for PassCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let experts = match (self.experts, other.experts) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
        Self { bytes: self.bytes + other.bytes, weights: self.weights + other.weights, experts }
    }
}

impl ExpertCost {
    /// The share of all experts that at least one of `rows` rows chooses.
    pub fn touched(&self, rows: usize) -> f64 {
        share_touched(self.chosen, rows)
    }

    /// Adds further layers. In every published model they choose the same share; otherwise the mean
    /// is taken.
    fn and(self, other: Self) -> Self {
        let weights = self.weights + other.weights;
        let chosen = if self.chosen == other.chosen {
            self.chosen
        } else {
            (self.chosen * self.weights as f64 + other.chosen * other.weights as f64) / weights.max(1) as f64
        };
        Self { bytes: self.bytes + other.bytes, weights, chosen }
    }
}

impl TargetSpec {
    /// The cost of its passes with elements of this many bytes: all layers, the final norm and the
    /// vocabulary head.
    pub fn cost(&self, element: usize) -> PassCost {
        let layers = self.layers.iter().map(|layer| PassCost::of_layer(layer, element));
        let norm = PassCost { bytes: (self.hidden * element) as u64, ..PassCost::default() };
        layers.fold(norm + self.vocabulary_cost(element), Add::add)
    }

    /// The cost of its vocabulary head.
    pub fn vocabulary_cost(&self, element: usize) -> PassCost {
        PassCost::for_matrix(self.head_rows, self.hidden, element)
    }

    /// Bytes of all its weights in memory.
    pub fn weight_bytes(&self, element: usize) -> u64 {
        let embedding = PassCost::for_matrix(self.vocabulary, self.hidden, element).bytes;
        let head = if self.tied { self.vocabulary_cost(element).bytes } else { 0 };
        self.cost(element).all_bytes() - head + embedding
    }

    /// Bytes per token in the caches of all layers.
    pub fn cache_row(&self, element: usize) -> u64 {
        self.layers.iter().map(|layer| layer.attention.kv().bytes(element) as u64).sum()
    }

    /// The part of [`cache_row`](Self::cache_row) that belongs to layers with a window.
    pub fn windowed_cache(&self, element: usize) -> Option<WindowedCache> {
        let windows: Vec<usize> = self.layers.iter().filter_map(|layer| layer.attention.window()).collect();
        let count = windows.len();
        (count > 0).then(|| WindowedCache {
            row: (count * self.kv().bytes(element)) as u64,
            window: windows.iter().sum::<usize>() / count,
        })
    }
}

impl DraftSpec {
    /// The cost of each of its passes, including its vocabulary head.
    pub fn cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        match self {
            Self::Recurrent(recurrent) => recurrent.cost(target, element),
            Self::Block(block) => block.cost(target, element),
            Self::Model(model) => model.cost(element),
            Self::Text(_) => PassCost::default(),
        }
    }

    /// The cost of its work on prompts and accepted tokens: see [`ModelCost::draft_extension`].
    pub fn extension_cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        match self {
            Self::Recurrent(recurrent) => recurrent.extension_cost(target, element),
            Self::Block(block) => block.extension_cost(target, element),
            Self::Model(_) | Self::Text(_) => PassCost::default(),
        }
    }

    /// The additional cost of each depth of a tree: see [`ModelCost::draft_level`].
    pub fn level_cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        match self {
            Self::Recurrent(_) | Self::Model(_) | Self::Text(_) => PassCost::default(),
            Self::Block(block) => block.level_cost(target, element),
        }
    }

    /// Bytes of the draft's weights in memory, in addition to the target's.
    pub fn weight_bytes(&self, target: &TargetSpec, element: usize) -> u64 {
        match self {
            Self::Recurrent(recurrent) => recurrent.weight_bytes(target, element),
            Self::Model(model) => model.weight_bytes(element),
            Self::Text(_) => 0,
            Self::Block(block) => {
                block.tensors(target.vocabulary).all().into_iter().map(|tensor| tensor.bytes(element)).sum()
            }
        }
    }

    /// Bytes per token in its caches.
    pub fn cache_row(&self, element: usize) -> u64 {
        self.layers().iter().map(|layer| layer.attention.kv().bytes(element) as u64).sum()
    }
}

impl BlockSpec {
    fn cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        let layers = self.layers.iter().map(|layer| PassCost::of_layer(&layer.layer, element));
        let norm = PassCost::from_tensors([&self.tensors(target.vocabulary).norm], element, 0.0);
        layers.fold(norm + PassCost::for_matrix(self.head_rows, self.hidden(), element), Add::add)
    }

    /// The features' projection, and the keys and values of every layer.
    fn extension_cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        let tensors = self.tensors(target.vocabulary);
        let kept = tensors.layers.iter().flat_map(|layer| match &layer.attention {
            AttentionTensors::Grouped(grouped) => vec![&grouped.key.weight, &grouped.value.weight],
            AttentionTensors::Latent(latent) => vec![&latent.compress.weight],
            AttentionTensors::Delta(_) => Vec::new(),
        });
        PassCost::from_tensors(tensors.reduce.all().chain([&tensors.context_norm]).chain(kept), element, 0.0)
    }

    fn level_cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        let markov = self.tensors(target.vocabulary).markov;
        PassCost::from_tensors(markov.iter().flat_map(super::MarkovTensors::all), element, 0.0)
    }
}

impl RecurrentSpec {
    /// The cost of each of its passes, including its vocabulary head.
    fn cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        let tensors = self.tensors(target.vocabulary);
        let hidden = self.hidden();
        let small = tensors.join.embedding_norm.iter().chain(&tensors.join.feature_norm).chain(&tensors.output_norm);
        let projection = tensors.join.projection.iter().flat_map(super::LinearTensors::all);
        let rows = match self.head {
            VocabularySource::Own | VocabularySource::Target => self.head_rows,
            VocabularySource::Embedding => target.head_rows,
        };
        PassCost::of_layer(&self.layer, element)
            + PassCost::from_tensors(small.chain(projection), element, 0.0)
            + PassCost::for_matrix(rows, hidden, element)
    }

    /// The cost of reducing the target's features, in the passes that do so: over prompts and
    /// accepted tokens.
    fn extension_cost(&self, target: &TargetSpec, element: usize) -> PassCost {
        let tensors = self.tensors(target.vocabulary);
        let norms = tensors.joined_norm.iter().chain(&tensors.capture_norms);
        PassCost::from_tensors(norms.chain(tensors.reduce.iter().flat_map(super::LinearTensors::all)), element, 0.0)
    }

    /// Bytes of the draft's weights in memory, in addition to the target's.
    pub fn weight_bytes(&self, target: &TargetSpec, element: usize) -> u64 {
        let own: u64 = self.tensors(target.vocabulary).all().into_iter().map(|tensor| tensor.bytes(element)).sum();
        // FR-Spec gathers rows of the target's head.
        let gathered = self.head == VocabularySource::Target && self.tokens.is_some();
        own + if gathered { (self.head_rows * self.hidden() * element) as u64 } else { 0 }
    }

    /// Bytes per token in its cache.
    pub fn cache_row(&self, element: usize) -> u64 {
        self.layer.attention.kv().bytes(element) as u64
    }
}

impl ModelCost {
    /// The cost of models whose values take `element` bytes.
    pub fn new(target: &TargetSpec, draft: Option<&DraftSpec>, element: usize) -> Self {
        Self {
            target: target.cost(element),
            target_vocabulary: target.vocabulary_cost(element).bytes,
            second_pass: None,
            target_cache_row: target.cache_row(element),
            target_windowed: target.windowed_cache(element),
            target_state: target.state().bytes(element),
            nodes: draft.map(DraftSpec::nodes).unwrap_or_default(),
            draft: draft.map(|draft| draft.cost(target, element)).unwrap_or_default(),
            draft_extension: draft.map(|draft| draft.extension_cost(target, element)).unwrap_or_default(),
            draft_level: draft.map(|draft| draft.level_cost(target, element)).unwrap_or_default(),
            draft_cache_row: draft.map_or(0, |draft| draft.cache_row(element)),
            draft_windowed: draft.and_then(|draft| draft.windowed_cache(element)),
            element: element as u64,
        }
    }

    /// Bytes that a pass of the target reads per token of a context of this many tokens: less than
    /// [`target_cache_row`](Self::target_cache_row) where layers with a window do not see all of
    /// it.
    pub fn target_row_read(&self, context: f64) -> f64 {
        row_read(self.target_cache_row, self.target_windowed, context)
    }

    /// The same of a pass of the draft.
    pub fn draft_row_read(&self, context: f64) -> f64 {
        row_read(self.draft_cache_row, self.draft_windowed, context)
    }

    /// Minimum number of bytes that a round of a batch reads, with `context` tokens per request.
    pub fn round_bytes(&self, shape: TreeShape, batch: usize, context: usize) -> u64 {
        self.passes(shape, batch, context, CountedShares::default()).into_iter().map(|pass| pass.bytes).sum::<f64>()
            as u64
    }

    /// The passes of such a round, each with the weights and caches that it reads and the products
    /// with weights that it computes. Products of attention are left out: at the contexts of rounds
    /// they are few beside those. Where experts were not `counted`, rows choose them uniformly and
    /// independently.
    pub fn passes(&self, shape: TreeShape, batch: usize, context: usize, counted: CountedShares) -> Vec<Cost> {
        let reading = |pass: Cost, bytes: f64| Cost { bytes: pass.bytes + bytes, ..pass };
        let cached = (batch * context) as f64;
        let verified = shape.verified_rows(batch);
        let states = (2 * batch) as f64 * self.target_state as f64;
        let read = cached * self.target_row_read(context as f64) + states;
        let mut all = vec![reading(self.target.reading(verified, counted.target), read)];
        let draft = |rows: usize| self.draft.reading(rows, counted.draft);
        if shape.is_off() {
            return all;
        }
        let accepted = batch * shape.longest_path();
        let (passes, rows) = self.nodes.passes(shape);
        let context = cached * self.draft_row_read(context as f64);
        all.extend(vec![reading(draft(batch * rows), context); passes]);
        match self.nodes {
            // The extension over the accepted tokens is a pass, which replaces that of the first
            // step.
            NodeSource::Beams => all.push(reading(draft(accepted) + self.draft_extension.at(accepted), context)),
            NodeSource::Text(_) => {}
            NodeSource::Block(_) => {
                all.push(self.draft_extension.at(accepted));
                all.extend(vec![self.draft_level.at(batch); shape.num_steps]);
            }
        }
        all
    }
}

/// Bytes that a pass reads per token of a context, of caches with this many bytes per token of
/// which some have a window.
fn row_read(row: u64, windowed: Option<WindowedCache>, context: f64) -> f64 {
    match windowed {
        Some(WindowedCache { row: part, window }) if context > window as f64 => {
            row as f64 - part as f64 * (1.0 - window as f64 / context)
        }
        _ => row as f64,
    }
}

#[cfg(test)]
mod tests;
