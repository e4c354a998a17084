//! Places for the states of sequences: what linear attention keeps of a sequence beside pages.

use crate::{error::EngineError, options::EngineOptions};

/// How much memory the states of sequences get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateOptions {
    /// Memory of states in relation to that of pages.
    pub ratio: f64,
    /// Maximum number of states.
    pub most: Option<usize>,
    /// Whether states are kept for later sequences with the same beginning.
    pub keeps: bool,
}

/// Places for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePlaces {
    /// Requests that can run.
    pub slots: usize,
    /// States that are kept for prefix reuse; `None` if sequences have no state.
    pub snapshots: Option<usize>,
    /// Bytes of all.
    pub bytes: u64,
}

impl StateOptions {
    /// Those of an engine.
    pub fn from_engine(options: &EngineOptions) -> Self {
        let EngineOptions { state_memory_ratio, max_states, disable_radix_cache, .. } = *options;
        Self { ratio: state_memory_ratio, most: max_states, keeps: !disable_radix_cache }
    }
}

impl StatePlaces {
    /// Divides the memory for caches and states, `share` (`None`: unknown, so without limit):
    /// states of `each` bytes get the options' ratio of what pages get. Running requests come
    /// first; the rest keeps states for later requests, at most one per page.
    ///
    /// # Errors
    /// When there is no memory for the state of one request.
    pub fn within(
        share: Option<u64>,
        options: StateOptions,
        requests: usize,
        each: u64,
        pages: usize,
    ) -> Result<Self, EngineError> {
        if each == 0 {
            return Ok(Self { slots: requests, snapshots: None, bytes: 0 });
        }
        let StateOptions { ratio, most, keeps } = options;
        let memory = share.map(|share| (share as f64 * ratio / (1.0 + ratio)) as u64);
        let affordable = memory.map_or(usize::MAX, |memory| (memory / each) as usize);
        let count = affordable.min(most.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(EngineError::OutOfMemory {
                what: "the state of one request".into(),
                needed_mib: (each >> 20).max(1),
                available_mib: memory.unwrap_or_default() >> 20,
                hint: "raise --mem-fraction-static or --mamba-full-memory-ratio".into(),
            });
        }
        let slots = requests.min(count);
        let snapshots = if keeps { (count - slots).min(pages) } else { 0 };
        if slots < requests {
            tracing::warn!("states of {} MiB each leave room for {slots} running requests, not {requests}", each >> 20);
        }
        tracing::info!(
            "linear attention keeps a state of {:.1} MiB per running request ({slots}), and up to {snapshots} for prefix \
             reuse",
            each as f64 / f64::from(1 << 20)
        );
        Ok(Self { slots, snapshots: Some(snapshots), bytes: (slots + snapshots) as u64 * each })
    }
}
