//! Estimate of the memory that a launch needs on one GPU, from the sizes of the models.

use schemas::{
    flags::Key,
    model::{LinearState, ModelConfig, ModelFacts, TokenBytes, element_bytes, normal_dtype},
    version::EngineVersion,
};

use super::{Algorithm, Given, Resolved, pools};
pub use pools::{FilledStates, StatePool};

const MIB: u64 = 1 << 20;

/// From here on the draft's weights count as static memory (SGLang PR #28855).
const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15);

/// Copies of the logits in verification with sampling: as computed, scaled by temperature, as
/// probabilities, and renormalised after top-k/top-p (SGLang `speculative/eagle_info.py`).
const COPIES_OF_LOGITS: u64 = 4;

/// What a process has taken before it loads weights: SGLang divides what is free then. Measured on
/// an H200 with CUDA 13 (SGLang 0.5.16 logs 139.09 of 140.4 GiB).
pub(super) const CONTEXT: u64 = 1331 * MIB;

/// Memory of one GPU in bytes. Parts that cannot be derived from the inputs are `None`; nothing is
/// guessed.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryEstimate {
    /// Total memory of the GPU.
    pub gpu: u64,
    /// The static share of what is free before weights are loaded: weights and KV cache.
    pub static_share: Option<u64>,
    /// The target's weights on this GPU.
    pub target_weights: Option<u64>,
    /// The draft's weights on this GPU; 0 if it has none of its own.
    pub draft_weights: Option<u64>,
    /// Whether the draft's weights are part of the static share (0.5.15 and later).
    pub draft_is_static: bool,
    /// The draft's copies of the target's embedding and head. They lie in memory while the engine
    /// measures what is free for the caches, and are given back afterwards.
    pub draft_copies: Option<u64>,
    /// One token in the caches of target and draft, as the engine counts it.
    pub kv_token: Option<u64>,
    /// One token in the target's cache, if some of its layers keep a window only.
    pub with_windows: Option<TokenBytes>,
    /// Capacity of these layers in tokens; `None` if they keep as much as the others.
    pub window_tokens: Option<u64>,
    /// The states of the target's linear attention.
    pub states: Option<StatePool>,
    /// What decides about the capacity, but is not estimated.
    pub undecided: Option<String>,
    /// One token in the cache of a whole model that drafts (STANDALONE). The engine counts its
    /// layers as if they were the target's; `None` for other drafts.
    pub draft_kv_token: Option<u64>,
    /// Capacity of the caches in tokens.
    pub kv_tokens: Option<u64>,
    /// What the draft's cache of that capacity takes beyond what the engine counts for it.
    pub draft_kv_beyond: Option<u64>,
    /// Logits of the largest captured verify in float32, once.
    pub verify_logits: Option<u64>,
    /// The engine's own reserve for activations and graphs: 1.5 MiB per token of a prefill chunk, 2
    /// MiB per request of the largest captured batch, and 512 MiB.
    pub activations: Option<u64>,
}

impl MemoryEstimate {
    /// Memory that the process has left outside the static share.
    pub fn outside(&self) -> Option<u64> {
        self.gpu.saturating_sub(CONTEXT).checked_sub(self.static_share?)
    }

    /// Memory that has to fit outside the static share; unknown parts count as 0.
    pub fn needed_outside(&self) -> u64 {
        let draft = if self.draft_is_static { 0 } else { self.draft_weights.unwrap_or(0) };
        let logits = self.verify_logits.unwrap_or(0).saturating_mul(COPIES_OF_LOGITS);
        let cache = self.draft_kv_beyond.unwrap_or(0);
        self.activations.unwrap_or(0).saturating_add(draft).saturating_add(cache).saturating_add(logits)
    }

    /// Bytes of the weights in the static share; `None` if the target's are not known.
    pub fn static_weights(&self) -> Option<u64> {
        let draft = if self.draft_is_static { self.draft_weights.unwrap_or(0) } else { 0 };
        self.target_weights?.checked_add(draft)
    }
}

/// Formats a number of bytes in the largest unit that fits, such as `1.5 GiB`.
pub fn readable(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

pub(super) fn estimate(given: &Given<'_>, resolved: &Resolved) -> Option<MemoryEstimate> {
    let gpu = given.gpu_memory?.checked_mul(MIB)?;
    let share =
        resolved.mem_fraction_static.as_ref().map(|share| share.value).filter(|share| (0.0..=1.0).contains(share));
    let mut estimate = MemoryEstimate {
        gpu,
        static_share: share.map(|share| (gpu.saturating_sub(CONTEXT) as f64 * share) as u64),
        target_weights: weights(
            given,
            resolved,
            given.target,
            resolved.target_dtype.as_ref().map(|dtype| dtype.value.as_str()),
        ),
        draft_weights: draft_weights(given, resolved),
        draft_is_static: given.version >= V0_5_15,
        draft_copies: draft_copies(given, resolved),
        kv_token: None,
        with_windows: with_windows(given, resolved),
        window_tokens: None,
        states: None,
        undecided: None,
        draft_kv_token: None,
        kv_tokens: None,
        draft_kv_beyond: None,
        verify_logits: verify_logits(given, resolved),
        activations: activations(resolved),
    };
    if let Some(token) = estimate.with_windows {
        fill_windows(given, resolved, token, &mut estimate);
        return Some(estimate);
    }
    let token = TokenOfKv::from_resolved(given, resolved);
    estimate.kv_token = token.as_ref().and_then(|token| token.target.checked_add(token.draft));
    estimate.draft_kv_token = token.as_ref().and_then(|token| token.model);
    estimate.kv_tokens = match linear_state(given, resolved) {
        Some(state) => fill_states(given, resolved, state, &mut estimate),
        None => free(&estimate).and_then(|free| kv_tokens(given, free, estimate.kv_token? as f64)),
    };
    let beyond = token.and_then(|token| Some(token.model?.saturating_sub(token.draft)));
    estimate.draft_kv_beyond = beyond.and_then(|beyond| beyond.checked_mul(estimate.kv_tokens?));
    Some(estimate)
}

fn weights(given: &Given<'_>, resolved: &Resolved, model: Option<&ModelFacts>, dtype: Option<&str>) -> Option<u64> {
    shared(given, resolved, model?.loaded_bytes(dtype?)?)
}

/// The part of `bytes` of weights that is on one GPU.
fn shared(given: &Given<'_>, resolved: &Resolved, bytes: u64) -> Option<u64> {
    // Attention ranks have whole copies of some layers, and expert parallelism splits others, so
    // the parts are not known.
    let may_have = |key: Key| given.launch.has(key) || given.launch.perhaps.contains(&key);
    let uneven = given.launch.attention_ranks() != Some(1) || may_have(Key::EnableDpAttention) || may_have(Key::EpSize);
    let stages = super::weights::pipeline_stages(given)?;
    let gpus = u64::try_from(resolved.tp_size.as_ref()?.value.checked_mul(stages)?).ok().filter(|gpus| *gpus > 0)?;
    (!uneven || gpus == 1).then_some(bytes / gpus)
}

/// Bytes of the draft on one GPU. Drafts without a path are MTP layers of the target's checkpoint,
/// or have no weights.
fn draft_weights(given: &Given<'_>, resolved: &Resolved) -> Option<u64> {
    let dtype = resolved.target_dtype.as_ref().map(|dtype| dtype.value.as_str());
    if !given.launch.has(Key::SpeculativeDraftModelPath) {
        let mtp = matches!(resolved.algorithm.as_ref().map(|algorithm| algorithm.value), Some(Algorithm::Eagle));
        return if mtp { mtp_weights(given, resolved, dtype) } else { Some(0) };
    }
    weights(given, resolved, given.draft, resolved.draft_dtype.as_ref().map(|dtype| dtype.value.as_str()))
}

/// Bytes of the MTP layers of the target's checkpoint on one GPU; 0 without MTP layers.
fn mtp_weights(given: &Given<'_>, resolved: &Resolved, dtype: Option<&str>) -> Option<u64> {
    let announced = given.target.and_then(|target| target.config.mtp_layers()).unwrap_or(0);
    if announced == 0 {
        return Some(0);
    }
    shared(given, resolved, given.target?.mtp_bytes(dtype?)?)
}

/// Bytes of the embedding and head that a recurrent draft has until it gets the target's, which is
/// after the caches are sized (`speculative/eagle_worker_v2.py`).
fn draft_copies(given: &Given<'_>, resolved: &Resolved) -> Option<u64> {
    let algorithm = resolved.algorithm.as_ref().map(|algorithm| algorithm.value);
    if given.version < V0_5_15 || !matches!(algorithm, Some(Algorithm::Eagle | Algorithm::Eagle3)) {
        return Some(0);
    }
    let heads = |config: &ModelConfig| if config.tie_word_embeddings == Some(true) { 1 } else { 2 };
    let (tables, config, dtype) = if given.launch.has(Key::SpeculativeDraftModelPath) {
        let draft = given.draft?;
        (draft.shared_tables(heads(&draft.config)), &draft.config, resolved.draft_dtype.as_ref())
    } else {
        let target = &given.target?.config;
        let has_layers = target.mtp_layers().unwrap_or(0) > 0;
        (if has_layers { heads(target) } else { 0 }, target, resolved.target_dtype.as_ref())
    };
    if tables == 0 {
        return Some(0);
    }
    let size = |size: Option<usize>| u64::try_from(size?).ok();
    let table = size(config.vocab_size)?.checked_mul(size(config.hidden_size)?)?;
    shared(given, resolved, table.checked_mul(tables)?.checked_mul(element_bytes(&dtype?.value)?)?)
}

/// Bytes of one token in the caches of one GPU.
struct TokenOfKv {
    target: u64,
    /// In the draft's cache, as the engine counts it (`model_executor/pool_configurator.py`): a
    /// block head by its own sizes, other drafts as if their layers were the target's.
    draft: u64,
    /// In the draft's cache, if it is a whole model whose sizes are known.
    model: Option<u64>,
}

/// Bytes of a number in the caches, and the number of GPUs that share heads.
fn element_and_gpus(given: &Given<'_>, resolved: &Resolved) -> Option<(u64, usize)> {
    let element = match given.launch.text(Key::KvCacheDtype) {
        Some(dtype) if dtype.value.starts_with("fp8") => 1,
        Some(dtype) if dtype.value != "auto" => element_bytes(normal_dtype(dtype.value)?)?,
        None if given.launch.has(Key::KvCacheDtype) => return None,
        _ => element_bytes(&resolved.target_dtype.as_ref()?.value)?,
    };
    if given.launch.attention_ranks() != Some(1) || given.launch.has(Key::PpSize) {
        return None;
    }
    Some((element, resolved.tp_size.as_ref()?.value))
}

/// A token of the target's cache, if some of its layers keep a window.
fn with_windows(given: &Given<'_>, resolved: &Resolved) -> Option<TokenBytes> {
    let (element, gpus) = element_and_gpus(given, resolved)?;
    given.target?.config.token_bytes(element, gpus).filter(|token| token.windowed > 0)
}

impl TokenOfKv {
    fn from_resolved(given: &Given<'_>, resolved: &Resolved) -> Option<Self> {
        let (element, gpus) = element_and_gpus(given, resolved)?;
        let config = &given.target?.config;
        let (target, layers) = match config.linear_state(gpus) {
            // Only layers that keep tokens count.
            Some(state) => (config.full_attention_token_bytes(element, gpus)?, state.full_layers),
            None => (config.kv_bytes_per_token(element, gpus)?, u64::try_from(config.num_hidden_layers?).ok()?),
        };
        let draft = given.draft.map(|draft| &draft.config);
        let own = draft.and_then(|draft| draft.kv_bytes_per_token(element, gpus));
        let as_layers = |count: usize| target.checked_mul(u64::try_from(count).ok()?)?.checked_div(layers);
        let of_layers = draft.and_then(|draft| draft.num_hidden_layers);
        let (draft, model) = match resolved.algorithm.as_ref().map(|algorithm| algorithm.value) {
            Some(Algorithm::Standalone) => (as_layers(of_layers?)?, own),
            Some(Algorithm::Eagle | Algorithm::Eagle3) => (as_layers(of_layers.unwrap_or(1))?, None),
            Some(Algorithm::Dflash | Algorithm::Dspark) => {
                (own.or_else(|| as_layers(of_layers.unwrap_or_default()))?, None)
            }
            _ => (0, None),
        };
        Some(Self { target, draft, model })
    }
}

/// The static memory that weights leave when the caches are sized.
fn free(estimate: &MemoryEstimate) -> Option<u64> {
    if estimate.draft_is_static && estimate.draft_weights.is_none() {
        return None;
    }
    let copies = if estimate.draft_is_static { estimate.draft_copies? } else { 0 };
    Some(estimate.static_share?.saturating_sub(estimate.static_weights()?).saturating_sub(copies))
}

fn kv_tokens(given: &Given<'_>, free: u64, token: f64) -> Option<u64> {
    let tokens = (token > 0.0).then(|| (free as f64 / token) as u64)?;
    let cap = given.launch.count(Key::MaxTotalTokens).and_then(|cap| u64::try_from(cap.value).ok());
    Some(cap.map_or(tokens, |cap| tokens.min(cap)))
}

/// The capacities of layers with and without a window.
fn fill_windows(given: &Given<'_>, resolved: &Resolved, token: TokenBytes, estimate: &mut MemoryEstimate) {
    let draft = || {
        let layers = u64::try_from(given.target?.config.num_hidden_layers?).ok()?;
        let layer = token.full.checked_add(token.windowed)?.checked_div(layers)?;
        let (element, gpus) = element_and_gpus(given, resolved)?;
        let own = given.draft.and_then(|draft| draft.config.kv_bytes_per_token(element, gpus));
        pools::draft_with_windows(given, resolved, layer, own)
    };
    match pools::windows(given, resolved, token, draft()) {
        Ok(pools) => {
            estimate.kv_token = Some(pools.token as u64);
            estimate.kv_tokens = free(estimate).and_then(|free| kv_tokens(given, free, pools.token));
            let share = estimate.kv_tokens.zip(pools.share);
            estimate.window_tokens = share.map(|(tokens, share)| (tokens as f64 * share) as u64);
        }
        Err(undecided) => estimate.undecided = Some(undecided),
    }
}

/// The target's states on one GPU.
fn linear_state(given: &Given<'_>, resolved: &Resolved) -> Option<LinearState> {
    let (_, gpus) = element_and_gpus(given, resolved)?;
    given.target?.config.linear_state(gpus)
}

/// The number of states, and the capacity for tokens that they leave.
fn fill_states(
    given: &Given<'_>,
    resolved: &Resolved,
    state: LinearState,
    estimate: &mut MemoryEstimate,
) -> Option<u64> {
    let state = pools::state_bytes(given, state)?;
    let free = free(estimate).map(|free| free.saturating_sub(pools::for_images(given)));
    let filled = pools::states(given, resolved, state, free);
    estimate.states = Some(StatePool { state, filled: filled.as_ref().ok().copied().flatten() });
    match filled {
        Ok(filled) => {
            let filled = filled?;
            let left = free?.saturating_sub(filled.bytes).saturating_sub(filled.verification);
            kv_tokens(given, left, estimate.kv_token? as f64)
        }
        Err(undecided) => {
            estimate.undecided = Some(undecided);
            None
        }
    }
}

fn verify_logits(given: &Given<'_>, resolved: &Resolved) -> Option<u64> {
    let rows = resolved.num_draft_tokens.as_ref().filter(|_| resolved.speculative)?.value;
    let batch = resolved.capture_sizes.as_ref()?.value.last().copied()?;
    let vocabulary = given.target?.config.vocab_size?;
    u64::try_from(rows.checked_mul(batch)?.checked_mul(vocabulary)?.checked_mul(4)?).ok()
}

fn activations(resolved: &Resolved) -> Option<u64> {
    let chunk = u64::try_from(resolved.chunked_prefill_size.as_ref()?.value.max(2048)).ok()?;
    let batch = resolved.capture_sizes.as_ref()?.value.last().copied().unwrap_or(0);
    let batch = u64::try_from(batch).ok()?;
    (chunk.checked_mul(3)? / 2).checked_add(batch.checked_mul(2)?)?.checked_add(512)?.checked_mul(MIB)
}
