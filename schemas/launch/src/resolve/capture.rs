//! The batch sizes for which a decode graph is captured.

use schemas::{
    defaults::{MOST_SIZES, ranges, speculative},
    flags::Key,
    text::Span,
    version::EngineVersion,
};

use super::{Decided, Given, Origin, Resolved};

const GIB: u64 = 1024;

const V0_4_10: EngineVersion = EngineVersion::new(0, 4, 10);
/// From here on the list is generated up to the largest size; before, a fixed list was cut.
const V0_5_6: EngineVersion = EngineVersion::new(0, 5, 6);
const V0_5_9: EngineVersion = EngineVersion::new(0, 5, 9);
/// From here on the largest size is always in the list.
const V0_5_12: EngineVersion = EngineVersion::new(0, 5, 12);
const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15);
/// From here on a default largest size is reduced to `--max-running-requests` if that is smaller.
const V0_5_23: EngineVersion = EngineVersion::new(0, 5, 23);

const HOOK: &str = "sglang arg_groups/cuda_graph_hook.py";

/// Memory that is assumed for an unknown GPU: the 80 GB class, which shares its defaults with all
/// larger cards except the largest ones.
const ASSUMED_MEMORY: u64 = 80 * GIB;

/// The batch sizes that are captured. If tensor parallelism is not known, `None` unless the list is
/// the same without it as on 8 GPUs.
pub(super) fn sizes_of(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<Vec<usize>>> {
    if resolved.tp_size.is_some() || given.launch.attention_ranks() != Some(1) {
        return sizes(given, resolved);
    }
    let parallel = |size: usize| {
        let tp_size = Some(Decided::default(size, "", HOOK));
        sizes(given, &Resolved { tp_size, ..resolved.clone() })
    };
    let (narrow, wide) = (parallel(1)?, parallel(8)?);
    let origin = match narrow.origin {
        Origin::Default { source, .. } => {
            Origin::Default { reason: "the same list with any tensor parallelism".into(), source }
        }
        origin => origin,
    };
    (narrow.value == wide.value).then_some(Decided { value: narrow.value, origin })
}

fn sizes(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<Vec<usize>>> {
    if let Some(off) = disabled(given, resolved) {
        return Some(off);
    }
    // If the request limit is given but unknown, so is the cut; without a limit nothing is cut.
    if given.launch.has(Key::MaxRunningRequests) && resolved.max_running_requests.is_none() {
        return None;
    }
    let pool = match &resolved.max_running_requests {
        Some(limit) => Some((limit.value / given.launch.attention_ranks()?).max(1)),
        None => None,
    };
    let written = match given.launch.setting(Key::CudaGraphBs) {
        Some(setting) => {
            let numbers = given.launch.integers(Key::CudaGraphBs)?;
            let numbers: Option<Vec<usize>> =
                numbers.iter().map(|number| usize::try_from(number.value).ok().filter(|size| *size > 0)).collect();
            Some((numbers.filter(|numbers| !numbers.is_empty())?, setting.span))
        }
        None => None,
    };
    let built = if given.version < V0_5_6 {
        old(given, resolved, &written, pool)?
    } else {
        new(given, resolved, &written, pool)?
    };
    let mut sizes = built.sizes;
    let multiple = alignment(given, resolved)?;
    if let Some(pool) = pool {
        let pool = pool.checked_next_multiple_of(if given.version >= V0_5_12 { multiple.divisor } else { 1 })?;
        if sizes.last().is_some_and(|largest| *largest > pool) {
            sizes.push(pool);
        }
        sizes.retain(|size| *size <= pool);
    }
    sizes.retain(|size| multiple.admits(*size));
    sizes.sort_unstable();
    sizes.dedup();
    Some(Decided { origin: origin(&sizes, written, built.reason, built.source, pool), value: sizes })
}

fn origin(
    sizes: &[usize],
    written: Option<(Vec<usize>, Span)>,
    reason: String,
    source: &'static str,
    pool: Option<usize>,
) -> Origin {
    let Some((mut numbers, span)) = written else { return Origin::Default { reason, source } };
    numbers.sort_unstable();
    numbers.dedup();
    if numbers == sizes {
        return Origin::Written(span);
    }
    let reason = match pool {
        Some(pool) => format!("cut to the {pool} requests that can run together on one worker"),
        None => reason,
    };
    Origin::Rewritten { written: span, reason, source }
}

/// An empty list with the reason why no decode graph is captured; `None` if graphs are captured.
fn disabled(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<Vec<usize>>> {
    let launch = given.launch;
    let switch = launch.setting(Key::DisableCudaGraph).or_else(|| launch.setting(Key::DisableDecodeCudaGraph));
    let by_backend = launch.text(Key::CudaGraphBackendDecode).filter(|backend| backend.value == "disabled");
    if let Some(span) = switch.map(|setting| setting.span).or(by_backend.map(|backend| backend.span)) {
        return Some(Decided { value: Vec::new(), origin: Origin::Written(span) });
    }
    if launch.text(Key::DisaggregationMode).is_some_and(|mode| mode.value == "prefill") && given.version >= V0_5_15 {
        return Some(Decided::default(Vec::new(), "a prefill engine decodes nothing", HOOK));
    }
    let backend = resolved.attention_backend.as_ref().map(|backend| backend.value.as_str());
    if matches!(backend, Some("torch_native" | "flex_attention")) {
        let reason = "this attention backend runs without CUDA graphs";
        return Some(Decided::default(Vec::new(), reason, "sglang attention backend checks"));
    }
    None
}

struct Built {
    sizes: Vec<usize>,
    reason: String,
    source: &'static str,
}

type WrittenSizes = Option<(Vec<usize>, Span)>;

/// Up to 0.5.2: a fixed list, longer on larger cards, cut or extended to the largest requested
/// size.
fn old(given: &Given<'_>, resolved: &Resolved, written: &WrittenSizes, pool: Option<usize>) -> Option<Built> {
    let memory = given.gpu_memory.unwrap_or(ASSUMED_MEMORY);
    let mut sizes = match written {
        Some((numbers, _)) => numbers.clone(),
        None => {
            let mut sizes = if resolved.speculative {
                ranges(&[(1..=8, 1), (10..=32, 2), (40..=63, 8), (80..=160, 16)])
            } else if given.launch.has(Key::DisableCudaGraphPadding) {
                ranges(&[(1..=32, 1), (48..=160, 16)])
            } else {
                ranges(&[(1..=2, 1), (4..=8, 4), (16..=160, 8)])
            };
            let (large, huge) = if given.version < V0_4_10 { (96 * GIB, 180 * 1000) } else { (90 * GIB, 160 * 1000) };
            if memory > large {
                sizes.extend(ranges(&[(160..=256, 8)]));
            }
            if memory > huge {
                sizes.extend(ranges(&[(256..=512, 16)]));
            }
            sizes
        }
    };
    sizes.sort_unstable();
    // These versions add the pool before they cut the list to the largest size.
    if let Some(pool) = pool.filter(|pool| sizes.last().is_some_and(|largest| largest > pool)) {
        sizes.push(pool);
    }
    let small = if given.version < V0_4_10 { 25_000 } else { 35 * GIB };
    let largest = match given.written(Key::CudaGraphMaxBs) {
        Some(largest) => Some(largest.value),
        None if given.launch.has(Key::CudaGraphMaxBs) => return None,
        None if given.gpu_memory.is_some_and(|memory| memory < small) => {
            Some(if resolved.tp_size.as_ref()?.value < 4 { 8 } else { 80 })
        }
        None => None,
    };
    if let Some(largest) = largest.filter(|largest| *largest > 0) {
        sizes.retain(|size| *size <= largest);
        let top = sizes.iter().copied().max()?;
        let end = pool.map_or(largest, |pool| largest.min(pool));
        if (end.saturating_sub(top)) / 16 > MOST_SIZES {
            return None;
        }
        if top < largest {
            sizes.extend((top..=end).step_by(16));
        }
    }
    sizes.sort_unstable();
    let reason = match given.gpu_memory {
        Some(memory) => format!("the fixed list of {} on a GPU of {memory} MiB", given.version),
        None => format!("the fixed list of {}, assuming a GPU of 80 GB", given.version),
    };
    Some(Built { sizes, reason, source: "sglang model_executor/cuda_graph_runner.py" })
}

/// From 0.5.6 on: a list up to the largest size, which depends on the card.
fn new(given: &Given<'_>, resolved: &Resolved, written: &WrittenSizes, pool: Option<usize>) -> Option<Built> {
    if let Some((numbers, _)) = written {
        let mut sizes = numbers.clone();
        sizes.sort_unstable();
        return Some(Built { sizes, reason: "the sizes that can run".into(), source: HOOK });
    }
    let (largest, reason) = largest(given, resolved)?;
    let most = pool.map_or(largest, |pool| largest.min(pool));
    if most > MOST_SIZES {
        return None;
    }
    // The caller cuts sizes above the pool; at least one of them must be in the list for the pool
    // to be added.
    let end = largest.min(most.saturating_add(64));
    let mut sizes = if given.launch.has(Key::DisableCudaGraphPadding) {
        (1..=end).collect()
    } else if resolved.speculative {
        speculative(end)
    } else {
        ranges(&[(1..=2, 1), (4..=12, 4), (16..=256, 8), (272..=511, 16), (512..=end, 32)])
    };
    sizes.retain(|size| *size <= end);
    if given.version >= V0_5_12 && sizes.last() != Some(&largest) && largest <= end {
        sizes.push(largest);
    }
    let reason = match pool.filter(|pool| *pool < largest) {
        Some(pool) => format!("{reason}, cut to the {pool} requests that can run together on one worker"),
        None => reason,
    };
    Some(Built { sizes, reason, source: HOOK })
}

/// The largest size, and where it comes from.
fn largest(given: &Given<'_>, resolved: &Resolved) -> Option<(usize, String)> {
    if let Some(written) = given.written(Key::CudaGraphMaxBs) {
        return Some((written.value, format!("the list up to {}", written.value))).filter(|_| written.value > 0);
    }
    if given.launch.has(Key::CudaGraphMaxBs) {
        return None;
    }
    let memory = given.gpu_memory.unwrap_or(ASSUMED_MEMORY);
    let parallel = resolved.tp_size.as_ref()?.value;
    let value = default_largest(memory, parallel, given.version);
    let on = match given.gpu_memory {
        Some(memory) => format!("on a GPU of {memory} MiB"),
        None => "assuming a GPU of 60 to 160 GiB".into(),
    };
    let reason = format!("the list up to {value}, {on} with tensor parallelism {parallel}");
    match given.written(Key::MaxRunningRequests).filter(|limit| given.version >= V0_5_23 && limit.value < value) {
        Some(limit) => Some((limit.value, format!("the list up to {}, the running requests", limit.value))),
        None => Some((value, reason)),
    }
    .filter(|(value, _)| *value > 0)
}

/// The largest batch for which graphs are planned, before the limit of running requests cuts the
/// list.
pub(super) fn largest_graph(given: &Given<'_>, resolved: &Resolved) -> Option<usize> {
    match given.launch.has(Key::CudaGraphBs) {
        true => {
            given.launch.integers(Key::CudaGraphBs)?.iter().filter_map(|size| usize::try_from(size.value).ok()).max()
        }
        false => largest(given, resolved).map(|(largest, _)| largest),
    }
}

/// The default largest captured batch, by memory in MiB and tensor parallelism
/// (`arg_groups/memory_hook.py`).
fn default_largest(memory: u64, tp_size: usize, version: EngineVersion) -> usize {
    let wide = tp_size >= 4;
    let rows: [(u64, usize, usize); 5] = [
        (20 * GIB, 8, 8),
        if version >= V0_5_23 { (35 * GIB, 48, 160) } else { (35 * GIB, 24, 80) },
        (60 * GIB, 32, 160),
        (160 * GIB, 256, 512),
        (u64::MAX, 512, 512),
    ];
    let row = rows.iter().find(|(limit, ..)| memory < *limit).unwrap_or(&(u64::MAX, 512, 512));
    if wide { row.2 } else { row.1 }
}

/// The condition on sizes that they divide evenly among the ranks of DP attention.
struct Alignment {
    divisor: usize,
    width: usize,
}

impl Alignment {
    fn admits(&self, size: usize) -> bool {
        size.checked_mul(self.width).is_some_and(|rows| rows.is_multiple_of(self.divisor))
    }
}

fn alignment(given: &Given<'_>, resolved: &Resolved) -> Option<Alignment> {
    let even = Alignment { divisor: 1, width: 1 };
    if given.version < V0_4_10 {
        return Some(even);
    }
    let ranks = given.launch.attention_ranks()?;
    if ranks <= 1 {
        return Some(even);
    }
    let tokens = resolved.num_draft_tokens.as_ref().filter(|_| resolved.speculative).map_or(1, |tokens| tokens.value);
    let width = if given.version >= V0_5_9 { tokens } else { 1 };
    Some(Alignment { divisor: (resolved.tp_size.as_ref()?.value / ranks).max(1), width })
}
