//! The engine's static share of a GPU's memory, and the size of a prefill chunk, by GPU memory and
//! version.
//!
//! SGLang: `server_args.py` up to 0.5.15, `arg_groups/memory_hook.py` after. Sizes are in MiB, as
//! there.

use schemas::{flags::Key, version::EngineVersion};

use super::{Algorithm, Decided, Given, Resolved, attention::uses_mla, capture, weights};

const GIB: f64 = 1024.0;

const V0_4_10: EngineVersion = EngineVersion::new(0, 4, 10);
/// From here on the reserve depends on the prefill chunk and the largest captured batch.
const V0_5_6: EngineVersion = EngineVersion::new(0, 5, 6);
/// From here on prefill is captured as well, and the reserve for drafts is larger.
const V0_5_12: EngineVersion = EngineVersion::new(0, 5, 12);
/// From here on the draft's weights count as static memory.
const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15);
const V0_5_23: EngineVersion = EngineVersion::new(0, 5, 23);

const SOURCE: &str = "sglang arg_groups/memory_hook.py";

/// Maximum number of tokens of one prefill pass; `None` if chunking is off or the card is not
/// known.
pub(super) fn chunked_prefill_size(given: &Given<'_>) -> Option<Decided<usize>> {
    if given.launch.has(Key::ChunkedPrefillSize) {
        return given.written(Key::ChunkedPrefillSize);
    }
    let memory = given.gpu_memory?;
    let (gib, new) = (1024, given.version >= V0_5_6);
    let size = if given.version < V0_4_10 {
        match memory {
            0..25_000 => 2048,
            180_001.. => 16384,
            _ if given.launch.disaggregation_mode().is_some() => 16384,
            _ => 8192,
        }
    } else if memory < 20 * gib || (memory < 35 * gib && given.version < V0_5_23) {
        2048
    } else if memory < 60 * gib && new {
        4096
    } else if memory < 160 * gib {
        8192
    } else {
        16384
    };
    Some(Decided::default(size, format!("on a GPU of {memory} MiB"), SOURCE))
}

/// The fraction of a GPU's memory for weights and KV cache; `None` if the card is not known.
pub(super) fn mem_fraction_static(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<f64>> {
    if given.launch.has(Key::MemFractionStatic) {
        let written = given.launch.number(Key::MemFractionStatic)?;
        return Some(Decided { value: written.value, origin: super::Origin::Written(written.span) });
    }
    let megabytes = given.gpu_memory.filter(|memory| *memory > 0)?;
    let memory = megabytes as f64;
    // Models with vision towers, and other devices, have different factors.
    let class = given.target?.config.architecture()?;
    if class.ends_with("ForConditionalGeneration") || given.launch.has(Key::Device) {
        return None;
    }
    let share = if given.version < V0_4_10 {
        oldest(resolved, gpus(given, resolved)?, memory)
    } else {
        let reserved = if given.version < V0_5_6 {
            by_card(given, resolved, gpus(given, resolved)?, memory)
        } else {
            by_use(given, resolved, memory)?
        };
        ((memory - reserved) / memory * 1000.0).round() / 1000.0
    };
    (share > 0.0)
        .then(|| Decided::default(share, format!("what is left of {megabytes} MiB for weights and KV cache"), SOURCE))
}

fn gpus(given: &Given<'_>, resolved: &Resolved) -> Option<f64> {
    Some(resolved.tp_size.as_ref()?.value.checked_mul(weights::pipeline_stages(given)?)? as f64)
}

/// 0.4.7: a fraction by card and parallelism, smaller with speculation.
fn oldest(resolved: &Resolved, parallel: f64, memory: f64) -> f64 {
    let share = match parallel {
        _ if memory > 81_920.0 => 0.88,
        16.0.. => 0.79,
        8.0.. => 0.81,
        4.0.. => 0.85,
        2.0.. => 0.87,
        _ => 0.88,
    };
    if memory > 180_000.0 {
        0.79
    } else if memory > 96.0 * GIB {
        let reserved = if resolved.speculative { 20.0 } else { 18.0 } * GIB;
        f64::min(share + 48.0 * GIB * (1.0 - share) / memory, (memory - reserved) / memory)
    } else if resolved.speculative {
        share * 0.95
    } else {
        share
    }
}

/// 0.4.10 to 0.5.2: a reserve in MiB by card, and a surcharge for the draft.
fn by_card(given: &Given<'_>, resolved: &Resolved, parallel: f64, memory: f64) -> f64 {
    let card = match memory / GIB {
        ..35.0 => 2.8 + parallel / 10.0,
        ..90.0 => 9.5 + parallel / 2.0,
        ..160.0 => 12.0 + parallel / 2.0,
        _ => 32.0,
    };
    let ranks = if given.launch.has(Key::EnableDpAttention) { 4.0 } else { 0.0 };
    (card + surcharge(given, resolved) + ranks) * GIB
}

/// From 0.5.6 on: a reserve in MiB for activations of a chunk, graphs of the largest batch and, up
/// to 0.5.12, the draft.
fn by_use(given: &Given<'_>, resolved: &Resolved, memory: f64) -> Option<f64> {
    let chunk = resolved.chunked_prefill_size.as_ref()?.value;
    let largest = capture::largest_graph(given, resolved)? as f64;
    let mode = given.launch.text(Key::DisaggregationMode).map(|mode| mode.value);
    let (new, prefill, decode) = (given.version >= V0_5_15, mode == Some("prefill"), mode == Some("decode"));
    let tokens = if new && decode {
        let running = given.written(Key::MaxRunningRequests).map_or(largest, |limit| limit.value as f64);
        running * given.written(Key::SpeculativeNumDraftTokens).map_or(1.0, |tokens| tokens.value as f64)
    } else {
        chunk as f64
    };
    let mut reserved = 512.0 + tokens.max(2048.0) * 1.5 + gpus(given, resolved)? / 8.0 * GIB;
    let graphs = !given.launch.has(Key::DisableCudaGraph) && !given.launch.has(Key::DisableDecodeCudaGraph);
    if !new || (graphs && !prefill) {
        reserved += largest * 2.0;
    }
    if !(new && prefill) {
        let ranks = given.launch.attention_ranks()? as f64;
        if ranks > 1.0 {
            reserved += largest * ranks * if largest > 300.0 { 4.5 } else { 3.0 };
        }
    }
    if given.version >= V0_5_12 && !(new && decode) && captures_prompts(given) {
        reserved += if given.target.is_some_and(|target| uses_mla(&target.config)) {
            1536.0
        } else {
            prompt_sizes(chunk) * 8.0
        };
    }
    if memory > 60.0 * GIB {
        reserved = reserved.max(10.0 * GIB);
    }
    Some(reserved + surcharge(given, resolved) * GIB)
}

fn captures_prompts(given: &Given<'_>) -> bool {
    let off = [Key::DisablePrefillCudaGraph, Key::DisableCudaGraph].iter().any(|key| given.launch.has(*key));
    !off && given.launch.text(Key::CudaGraphBackendPrefill).is_none_or(|backend| backend.value != "disabled")
}

/// Number of prefill sizes that are captured up to `most` tokens.
fn prompt_sizes(most: usize) -> f64 {
    let parts = [(4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, most, 512)];
    let count = |(first, last, step): (usize, usize, usize)| match last.min(most).checked_sub(first) {
        Some(length) => length / step + 1,
        None => 0,
    };
    parts.into_iter().map(count).sum::<usize>() as f64
}

/// GiB that speculation adds to the reserve: 0 once the draft's weights count as static.
fn surcharge(given: &Given<'_>, resolved: &Resolved) -> f64 {
    let version = given.version;
    if !resolved.speculative || version >= V0_5_15 {
        return 0.0;
    }
    match resolved.algorithm.as_ref().map(|algorithm| algorithm.value) {
        Some(Algorithm::Standalone) if version > V0_4_10 => 6.0,
        Some(Algorithm::Ngram) if version >= V0_5_6 => 0.0,
        _ if version >= V0_5_12 => 4.0,
        _ => 2.0,
    }
}
