//! Which versions of other engines run a different chain at each batch size, and in which form they
//! read the table.
//!
//! Both what is exported and what the tuner starts follow this module. Read from the wheels of
//! SGLang 0.5.11 to 0.5.23 (`speculative/adaptive_spec_params.py`) and of vLLM 0.24.0, 0.26.0,
//! 0.30.0, 0.32.0 and 0.33.0 (`v1/spec_decode/dynamic/utils.py`, `config/vllm.py`).

use serde_json::{Value, json};

use crate::version::EngineVersion;

/// vLLM's key for the schedule in the JSON of `--speculative-config`.
pub const VLLM_SCHEDULE: &str = "num_speculative_tokens_per_batch_size";

/// The first version of SGLang with `--speculative-adaptive-config`. Its file is one list of steps
/// for all batches.
const SGLANG_ONE_LIST: EngineVersion = EngineVersion::new(0, 5, 11);
/// The first version whose file has a slot for each smallest batch. Slots may have one candidate,
/// of at least one step.
const SGLANG_SLOTS: EngineVersion = EngineVersion::new(0, 5, 13);
/// The first version in which a slot may have 0 steps (no speculation).
const SGLANG_ZERO_STEPS: EngineVersion = EngineVersion::new(0, 5, 14);
/// The first version of vLLM with the schedule; its form and its checks are the same up to 0.33.
const VLLM_RANGES: EngineVersion = EngineVersion::new(0, 24, 0);
/// The first version in which the schedule runs in full CUDA graphs for every length (read in
/// 0.33.0, which computes capture sizes for each length). Earlier ones may fall back to piecewise
/// graphs, so their rounds are not those of a start with one chain.
const VLLM_GRAPHS: EngineVersion = EngineVersion::new(0, 33, 0);

/// Why a version of an engine does not run a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTable {
    /// SGLang without adaptive speculation.
    #[error(
        "SGLang {0} has no --speculative-adaptive-config; {SGLANG_SLOTS} is the first version that supports a table"
    )]
    SglangWithout(EngineVersion),
    /// SGLang that does not adapt steps.
    #[error("SGLang {0} does not adapt its steps; {SGLANG_ONE_LIST} is the first version with --speculative-adaptive")]
    SglangNotAdaptive(EngineVersion),
    /// SGLang with one list of steps for all batches.
    #[error(
        "the adaptive file of SGLang {0} has one list of steps for all batch sizes; {SGLANG_SLOTS} is the first \
         version that supports a table"
    )]
    SglangOneList(EngineVersion),
    /// SGLang whose slots need at least one step.
    #[error("SGLang {0} refuses 0 steps (no speculation) in its adaptive file; {SGLANG_ZERO_STEPS} accepts them")]
    SglangZeroSteps(EngineVersion),
    /// vLLM without the key.
    #[error("vLLM {0} has no {VLLM_SCHEDULE}; {VLLM_RANGES} is the first version that supports a table")]
    Vllm(EngineVersion),
    /// vLLM that follows the schedule with other graphs than one chain.
    #[error(
        "vLLM {0} may run a schedule without full CUDA graphs, so its rounds would not be those of one chain; \
         {VLLM_GRAPHS} is the first version whose schedule is measured"
    )]
    VllmGraphs(EngineVersion),
}

/// How a version of SGLang reads the file of `--speculative-adaptive-config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptiveForm {
    /// One list of steps for all batches.
    OneList,
    /// A slot for each smallest batch.
    Slots {
        /// Whether a slot may have 0 steps.
        zero_steps: bool,
    },
}

/// The form of the adaptive file of a version of SGLang.
///
/// # Errors
/// If the version has no such file.
pub fn sglang_adaptive_form(version: EngineVersion) -> Result<AdaptiveForm, NoTable> {
    match version {
        _ if version < SGLANG_ONE_LIST => Err(NoTable::SglangNotAdaptive(version)),
        _ if version < SGLANG_SLOTS => Ok(AdaptiveForm::OneList),
        _ => Ok(AdaptiveForm::Slots { zero_steps: version >= SGLANG_ZERO_STEPS }),
    }
}

/// Whether the adaptive file of a version of SGLang can hold a table.
///
/// # Errors
/// The reason, if it cannot.
pub fn sglang_follows(version: EngineVersion, has_zero_steps: bool) -> Result<(), NoTable> {
    match sglang_adaptive_form(version).map_err(|_| NoTable::SglangWithout(version))? {
        AdaptiveForm::OneList => Err(NoTable::SglangOneList(version)),
        AdaptiveForm::Slots { zero_steps: false } if has_zero_steps => Err(NoTable::SglangZeroSteps(version)),
        AdaptiveForm::Slots { .. } => Ok(()),
    }
}

/// Whether a version of vLLM accepts a schedule and follows it.
///
/// # Errors
/// The reason, if it does not.
pub fn vllm_follows(version: EngineVersion) -> Result<(), NoTable> {
    if version < VLLM_RANGES { Err(NoTable::Vllm(version)) } else { Ok(()) }
}

/// Whether the rounds of a schedule are those of a start with one chain, so that one start measures
/// several.
///
/// # Errors
/// The reason, if they may not be.
pub fn vllm_measures(version: EngineVersion) -> Result<(), NoTable> {
    vllm_follows(version)?;
    if version < VLLM_GRAPHS { Err(NoTable::VllmGraphs(version)) } else { Ok(()) }
}

/// vLLM's schedule, from (first batch, last batch, drafted tokens).
pub fn vllm_schedule(ranges: impl IntoIterator<Item = (usize, usize, usize)>) -> Value {
    ranges.into_iter().map(|(first, last, tokens)| json!([first, last, tokens])).collect()
}

/// vLLM's capture sizes, which count tokens: each request of a round has the verified tokens of its
/// chain and one more. `sizes` are batch sizes, `ranges` as in [`vllm_schedule`]. Every range gets
/// the sizes within it and its last batch, if there is more than one range.
pub fn vllm_capture_sizes(sizes: &[usize], ranges: &[(usize, usize, usize)]) -> Vec<usize> {
    let of_range = |(first, last, tokens): &(usize, usize, usize)| {
        let (first, last, tokens) = (*first, *last, *tokens);
        let within = sizes.iter().copied().filter(move |size| ranges.len() == 1 || (first..=last).contains(size));
        let end = (ranges.len() > 1).then_some(last);
        within.chain(end).map(move |size| size.saturating_mul(tokens + 1)).collect::<Vec<_>>()
    };
    let mut tokens: Vec<usize> = ranges.iter().flat_map(of_range).collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> EngineVersion {
        text.parse().expect("a version")
    }

    #[test]
    fn a_version_supports_what_its_wheel_was_read_to_support() {
        for (text, chains, zero_steps) in [
            ("0.5.10", false, false),
            ("0.5.11", false, false),
            ("0.5.12.post1", false, false),
            ("0.5.13", true, false),
            ("0.5.14", true, true),
            ("0.5.16", true, true),
            ("0.5.23", true, true),
        ] {
            let follows = [false, true].map(|zero| sglang_follows(version(text), zero).is_ok());
            assert_eq!(follows, [chains, zero_steps], "{text}");
        }
        let vllm = |text| (vllm_follows(version(text)).is_ok(), vllm_measures(version(text)).is_ok());
        assert_eq!(["0.23.0", "0.24.0", "0.33.0"].map(vllm), [(false, false), (true, false), (true, true)]);
        let words = sglang_follows(version("0.5.12"), false).map_err(|why| why.to_string());
        assert!(words.is_err_and(|words| words.contains("0.5.13 is the first version")));
    }

    #[test]
    fn capture_sizes_of_vllm_count_tokens() {
        assert_eq!(vllm_capture_sizes(&[1, 8], &[(1, 8, 0)]), [1, 8]);
        assert_eq!(vllm_capture_sizes(&[1, 8], &[(1, 8, 3)]), [4, 32]);
        // 1 and 4 requests with 5 drafts, 8 and 10 with 2, and 64 without.
        let ranges = [(1, 4, 5), (5, 10, 2), (11, 64, 0)];
        assert_eq!(vllm_capture_sizes(&[1, 4, 8], &ranges), [6, 24, 30, 64]);
    }
}
