//! How SGLang divides the memory for caches between pools: layers that keep all tokens and layers
//! that keep a window (gpt-oss), or tokens and states of linear attention (Qwen3.5, Qwen3-Next).
//!
//! `model_executor/pool_configurator.py`, `mem_cache/kv_cache_configurator.py`.

use schemas::{
    flags::Key,
    model::{LinearState, TokenBytes, element_bytes, normal_dtype},
    version::EngineVersion,
};

use super::{Algorithm, Given, Resolved};

const MIB: u64 = 1 << 20;

/// The first version whose division was read.
const V0_5_16: EngineVersion = EngineVersion::new(0, 5, 16);
/// From here on states have a padding slot, in the pool of requests and in that of verification.
const V0_5_17: EngineVersion = EngineVersion::new(0, 5, 17);
/// From here on drafts of blocks count in layers with windows, and images have a reserve.
const V0_5_18: EngineVersion = EngineVersion::new(0, 5, 18);

/// Tokens of a window's pool for one of the others, by default (`--swa-full-tokens-ratio`).
const WINDOW_SHARE: f64 = 0.8;
/// Memory of states for that of tokens, by default (`--mamba-full-memory-ratio`).
const STATE_SHARE: f64 = 0.9;
/// States for a request with the prefix cache: its own, and two of the cache.
const STATES_WITH_PREFIX_CACHE: u64 = 3;
/// Cached embeddings of images (`SGLANG_VLM_CACHE_SIZE_MB`).
const IMAGES: u64 = 100 * MIB;

/// What is read of the launch, in the words of the flags whose effect is not estimated.
pub(super) type Undecided = String;

/// The two pools of a model with windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowPools {
    /// Bytes of one token in layers that keep all, with its part of the windows' pool and of the
    /// draft's.
    pub token: f64,
    /// Tokens of the windows' pool for one of the others; `None` if all layers keep all tokens.
    pub share: Option<f64>,
}

/// The states of linear attention on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePool {
    /// Bytes of the state of one request.
    pub state: u64,
    /// Number of states, and what they take with those of verification.
    pub filled: Option<FilledStates>,
}

/// A pool of states in the memory that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledStates {
    /// States that requests and the prefix cache can have.
    pub states: u64,
    /// States for one running request.
    pub per_request: u64,
    /// Bytes of these states.
    pub bytes: u64,
    /// Bytes of the states of each drafted token, for rejections.
    pub verification: u64,
}

/// The pools of a model with windows, or what decides that is not estimated.
pub(super) fn windows(
    given: &Given<'_>,
    resolved: &Resolved,
    token: TokenBytes,
    draft: Option<u64>,
) -> Result<WindowPools, Undecided> {
    check_known_version(given)?;
    let Some(draft) = draft else { return Err("the draft's sizes".into()) };
    refuse(given, &["enable-unified-memory"])?;
    let (full, windowed, draft) = (token.full as f64, token.windowed as f64, draft as f64);
    if is_given(given, "disable-hybrid-swa-memory") {
        return Ok(WindowPools { token: full + windowed + draft, share: None });
    }
    // With a limit of requests the pool of windows is then sized by them.
    if given.launch.has(Key::DisableRadixCache) && resolved.max_running_requests.is_some() {
        return Err("`--disable-radix-cache`, with which requests size the windows".into());
    }
    let share = ratio(given, "swa-full-tokens-ratio", WINDOW_SHARE)?;
    Ok(WindowPools { token: full + share * windowed + draft, share: Some(share) })
}

/// Bytes of a draft's token as the engine counts it beside windows: recurrent drafts and whole
/// models by layers of the target that keep all tokens, and drafts of blocks by their own sizes.
pub(super) fn draft_with_windows(given: &Given<'_>, resolved: &Resolved, layer: u64, own: Option<u64>) -> Option<u64> {
    let layers = given.draft.and_then(|draft| draft.config.num_hidden_layers);
    let of_layers = |count: usize| layer.checked_mul(u64::try_from(count).ok()?);
    match resolved.algorithm.as_ref().map(|algorithm| algorithm.value) {
        Some(Algorithm::Standalone) => of_layers(layers?),
        Some(Algorithm::Eagle | Algorithm::Eagle3) => of_layers(layers.unwrap_or(1)),
        Some(Algorithm::Dflash | Algorithm::Dspark) if given.version >= V0_5_18 => own,
        _ => Some(0),
    }
}

/// Bytes of the state of one request: the convolution in bfloat16, and the recurrent state.
pub(super) fn state_bytes(given: &Given<'_>, state: LinearState) -> Option<u64> {
    let config = &given.target?.config;
    let dtype = match given.launch.text(Key::MambaSsmDtype) {
        Some(dtype) => dtype.value,
        None if given.launch.has(Key::MambaSsmDtype) => return None,
        None => config.other.get("mamba_ssm_dtype").and_then(|dtype| dtype.as_str()).unwrap_or("float32"),
    };
    let recurrent = state.recurrent.checked_mul(element_bytes(normal_dtype(dtype)?)?)?;
    state.convolution.checked_mul(2)?.checked_add(recurrent)?.checked_mul(state.layers)
}

/// Divides `free` bytes between states and tokens; `None` if their number depends on what is free,
/// which is not known.
pub(super) fn states(
    given: &Given<'_>,
    resolved: &Resolved,
    state: u64,
    free: Option<u64>,
) -> Result<Option<FilledStates>, Undecided> {
    check_known_version(given)?;
    refuse(
        given,
        &[
            "enable-unified-memory",
            "enable-linear-replayssm",
            "enable-linear-replayssm-spec",
            "enable-gdn-replayssm-spec",
            "enable-int8-mamba-checkpoint",
        ],
    )?;
    for (name, usual) in [("disaggregation-mode", "null"), ("device", "cuda")] {
        if text(given, name)?.is_some_and(|word| word != usual) {
            return Err(format!("`--{name}`"));
        }
    }
    for name in ["SGLANG_MAMBA_SSM_DTYPE", "SGLANG_MAMBA_CONV_DTYPE", "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK"] {
        if given.launch.variable(name).is_some() {
            return Err(format!("`{name}`"));
        }
    }
    let sizes = StateSizes {
        state,
        // A slot that no request has.
        padding: u64::from(given.version >= V0_5_17),
        per_request: states_per_request(given)?,
        drafted: match resolved.speculative {
            true => Some(wide(resolved.num_draft_tokens.as_ref(), "the number of draft tokens")?),
            false => None,
        },
    };
    let running = || wide(resolved.max_running_requests.as_ref(), "the limit of requests");
    // Only states of verification are sized by requests.
    let verified = |states: u64| match sizes.drafted {
        Some(_) => Ok(running()?.min(states / sizes.per_request)),
        None => Ok::<u64, Undecided>(0),
    };
    let filled = if let Some(count) = number(given, "max-mamba-cache-size")? {
        sizes.filled(count, verified(count)?)
    } else if given.launch.has(Key::DisableRadixCache) && resolved.max_running_requests.is_some() {
        let count = running()?;
        sizes.filled(count, count)
    } else {
        let share = ratio(given, "mamba-full-memory-ratio", STATE_SHARE)?;
        let Some(free) = free else { return Ok(None) };
        let count = sizes.fitting(free as f64 * share / (1.0 + share));
        sizes.filled(count, verified(count)?)
    };
    filled.map(Some).ok_or_else(|| "sizes beyond all memory".into())
}

/// What the engine keeps for images.
pub(super) fn for_images(given: &Given<'_>) -> u64 {
    let class = given.target.and_then(|target| target.config.architecture()).unwrap_or_default();
    if class.ends_with("ForConditionalGeneration") && given.version >= V0_5_18 { IMAGES } else { 0 }
}

/// What decides about a number of states.
struct StateSizes {
    state: u64,
    padding: u64,
    per_request: u64,
    /// Drafted tokens of a round, each of which has a state while it is verified.
    drafted: Option<u64>,
}

impl StateSizes {
    /// The largest number of states that fit into `budget` with those of verification.
    fn fitting(&self, budget: f64) -> u64 {
        let state = self.state as f64;
        let (padding, drafted) = (self.padding as f64, self.drafted.unwrap_or(0) as f64);
        let each = state * (1.0 + drafted / self.per_request as f64);
        let left = budget - padding * state * (1.0 + drafted);
        if each > 0.0 { (left / each).floor().max(0.0) as u64 } else { 0 }
    }

    fn filled(&self, states: u64, requests: u64) -> Option<FilledStates> {
        let verified = requests.checked_add(self.padding)?.checked_mul(self.drafted.unwrap_or(0))?;
        Some(FilledStates {
            states,
            per_request: self.per_request,
            bytes: states.checked_add(self.padding)?.checked_mul(self.state)?,
            verification: verified.checked_mul(self.state)?,
        })
    }
}

/// States for one running request, by the prefix cache and the scheduler.
fn states_per_request(given: &Given<'_>) -> Result<u64, Undecided> {
    if given.launch.has(Key::DisableRadixCache) {
        return Ok(1);
    }
    let overlaps = !given.launch.has(Key::DisableOverlapSchedule);
    let strategy = match text(given, "mamba-radix-cache-strategy")? {
        Some(strategy) => Some(strategy),
        None => text(given, "mamba-scheduler-strategy")?,
    };
    let more = match strategy {
        Some("no_buffer") => 0,
        Some("extra_buffer_lazy") => 1,
        Some("extra_buffer") | None if overlaps => 2,
        Some("extra_buffer") => 1,
        Some("auto") if overlaps => 2,
        _ => return Err("the strategy of states without `--mamba-radix-cache-strategy`".into()),
    };
    Ok(STATES_WITH_PREFIX_CACHE + more)
}

fn check_known_version(given: &Given<'_>) -> Result<(), Undecided> {
    if given.version >= V0_5_16 {
        return Ok(());
    }
    Err(format!("sglang {}, whose division of memory was not read", given.version))
}

/// Flags whose effect is not estimated.
fn refuse(given: &Given<'_>, names: &[&str]) -> Result<(), Undecided> {
    match names.iter().find(|name| is_given(given, name)) {
        Some(name) => Err(format!("`--{name}`")),
        None => Ok(()),
    }
}

fn is_given(given: &Given<'_>, name: &str) -> bool {
    given.launch.argument(name).is_some()
}

/// The value of a flag; `None` if it is not given.
fn text<'a>(given: &Given<'a>, name: &str) -> Result<Option<&'a str>, Undecided> {
    let Some(argument) = given.launch.argument(name) else { return Ok(None) };
    let value = argument.known().filter(|_| !argument.in_branch);
    value.map(Some).ok_or_else(|| format!("the value of `--{name}`"))
}

fn number(given: &Given<'_>, name: &str) -> Result<Option<u64>, Undecided> {
    let read = |text: &str| text.trim().parse().map_err(|_| format!("the value of `--{name}`"));
    text(given, name)?.map(read).transpose()
}

/// A positive number, or its default.
fn ratio(given: &Given<'_>, name: &str, default: f64) -> Result<f64, Undecided> {
    let Some(text) = text(given, name)? else { return Ok(default) };
    let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("the value of `--{name}`"))
}

fn wide(decided: Option<&super::Decided<usize>>, name: &str) -> Result<u64, Undecided> {
    decided.and_then(|decided| u64::try_from(decided.value).ok()).ok_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests;
