//! The CPU backend: the reference for all others. Clarity comes before speed; `kernels::reference`
//! defines its arithmetic.

mod attention;
mod bandwidth;
mod beams;
mod block;
mod draft;
mod ffn;
mod layer;
mod linear;
mod load;
mod model;
mod passes;
mod prefill;
mod quality;
mod recurrent;
mod replay;
mod round;
mod slot;
mod states;
mod target;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::VecDeque,
    ops::Range,
    time::{Duration, Instant},
};

use schemas::tree::{NodeSource, TreeShape};

use self::{attention::Cache, draft::CpuDraft, slot::SlotState, target::Target};
pub use self::{
    load::load,
    quality::{Quality, cache_quality, quantisation_quality},
};
use super::{
    Backend, Capacity, Decode, Describe, DeviceInfo, Drafted, Exchange, Measure, PageId, Pool, Prefill, PrefillChunk,
    ProbabilityQuery, Replay, ReplayPlace, Round, RoundOutput, Slot, Slots, Snapshot, StateRow, TargetStates, Ticket,
    TokenLogprobs, WindowChange, Yield, check_budget, expect_finite,
    expert_reads::{ExpertCount, ExpertReads, ExpertTally},
    slot_table::SlotTable,
    windows::PageBytes,
};
use crate::{
    adjust::Adjuster,
    error::EngineError,
    options::EngineOptions,
    played::{Simulated, expect_played},
    request::SamplingParams,
    spec::{CacheFormat, ModelCost},
};

/// A target, a draft and their caches in host memory.
#[derive(Debug)]
pub struct CpuBackend {
    target: Target,
    draft: Option<Box<dyn CpuDraft>>,
    capacity: Capacity,
    /// One per target layer, with a row for each position of each page, or of each window page if
    /// the layer has a window; or the states of a layer, for each slot and then for each snapshot.
    caches: Vec<Cache>,
    /// One per draft layer: the same rows, then scratch rows for the draft's rows of a round.
    draft_caches: Vec<Cache>,
    slots: SlotTable<SlotState>,
    /// How acceptance is simulated, if it is.
    simulated: Option<Simulated>,
    /// Whether the draft follows the sequences.
    follows: bool,
    /// The batch sizes of the graphs that a GPU would have, ascending.
    capture_sizes: Vec<usize>,
    finished: VecDeque<(Ticket, RoundOutput)>,
    launched: u64,
    /// Time of prefills that has not been reported.
    prefilled: Duration,
    counted: ExpertCount,
}

impl CpuBackend {
    /// Allocates the caches.
    fn new(target: Target, draft: Option<Box<dyn CpuDraft>>, capacity: Capacity) -> Self {
        let rows = capacity.pages * capacity.page_size;
        let windowed = capacity.windows.map_or(rows, |windows| windows.count * capacity.page_size);
        Self {
            caches: target.caches(rows, windowed, capacity.slots + capacity.snapshots.unwrap_or_default()),
            draft_caches: draft.as_ref().map(|draft| draft.caches(rows)).unwrap_or_default(),
            slots: SlotTable::new(capacity),
            target,
            draft,
            capacity,
            simulated: None,
            follows: false,
            capture_sizes: Vec::new(),
            finished: VecDeque::new(),
            launched: 0,
            prefilled: Duration::ZERO,
            counted: ExpertCount::default(),
        }
    }

    /// Keeps the output of a round until it is collected.
    fn finish(&mut self, output: RoundOutput) -> Ticket {
        self.launched += 1;
        self.finished.push_back((Ticket(self.launched), output));
        Ticket(self.launched)
    }

    /// Copies states between a slot and a snapshot, in the direction that `order` chooses.
    fn copy_state(
        &mut self,
        slot: Slot,
        snapshot: Snapshot,
        order: impl Fn(usize, usize) -> (usize, usize),
    ) -> Result<(), EngineError> {
        let (slot, snapshot) = self.slots.state_places(slot, snapshot)?;
        let (from, to) = order(slot, snapshot);
        self.caches.iter_mut().filter_map(Cache::states).for_each(|states| states.copy(from, to));
        Ok(())
    }

    /// The cost of passes. Weights and caches are held as float32, whatever their dtype in the
    /// checkpoint.
    fn cost_of(target: &Target, draft: Option<&dyn CpuDraft>) -> ModelCost {
        // Weights are converted to float32 when they are loaded, whatever the checkpoint stores.
        let target = target.spec().in_plain();
        let target = target.with_cache(CacheFormat::Plain).unwrap_or(target);
        let draft = draft.map(|draft| draft.spec().in_plain());
        let draft = draft.map(|draft| draft.with_cache(CacheFormat::Plain).unwrap_or(draft));
        ModelCost::new(&target, draft.as_ref(), size_of::<f32>())
    }

    /// Counts of the draft's layers of experts.
    fn draft_tallies(draft: Option<&dyn CpuDraft>) -> impl Iterator<Item = &ExpertTally> {
        draft.into_iter().flat_map(|draft| draft.tallies())
    }

    /// Bytes of a page of this many tokens.
    fn page_bytes(target: &Target, draft: Option<&dyn CpuDraft>, page_size: usize) -> PageBytes {
        let cost = Self::cost_of(target, draft);
        let window = cost.target_windowed.map_or(0, |windowed| windowed.row);
        let page = cost.target_cache_row - window + cost.draft_cache_row;
        PageBytes { page: page * page_size as u64, window: window * page_size as u64 }
    }
}

impl Describe for CpuBackend {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            device: "cpu".into(),
            name: processor(),
            driver: String::new(),
            units: rayon::current_num_threads(),
        }
    }

    fn looks_up(&self) -> bool {
        false
    }

    fn cost(&self) -> ModelCost {
        Self::cost_of(&self.target, self.draft.as_deref())
    }
}

impl Slots for CpuBackend {
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        self.slots.check_open(slot, pages, cached)?;
        self.slots.open(slot, SlotState::new(sampling.clone(), pages, self.capacity.page_size, cached))?;
        self.caches.iter_mut().filter_map(Cache::states).for_each(|states| states.reset(slot.0 as usize));
        Ok(())
    }

    fn extend(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError> {
        self.slots.check_pages(pages)?;
        self.slots.get_mut(slot)?.extend(pages, self.capacity.page_size);
        Ok(())
    }

    fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        self.slots.change_windows(changes)
    }

    fn keep(&mut self, slot: Slot, to: Snapshot) -> Result<(), EngineError> {
        self.copy_state(slot, to, |slot, snapshot| (slot, snapshot))
    }

    fn resume(&mut self, slot: Slot, from: Snapshot) -> Result<(), EngineError> {
        self.copy_state(slot, from, |slot, snapshot| (snapshot, slot))
    }

    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError> {
        let state = self.slots.get_mut(slot)?;
        state.adjuster = Some(Adjuster::after(&state.sampling.adjustments, prompt, output, ends));
        Ok(())
    }

    fn remember(&mut self, _: Slot, _: &[u32], _: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }

    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs> {
        self.slots.get_mut(slot).map(|state| std::mem::take(&mut state.prompt_logprobs)).unwrap_or_default()
    }

    fn grammar_failure(&self, slot: Slot) -> Option<String> {
        self.slots.find(slot)?.adjuster.as_ref()?.failure().map(ToOwned::to_owned)
    }

    fn close(&mut self, slot: Slot) {
        self.slots.close(slot);
    }
}

impl Prefill for CpuBackend {
    fn prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<bool, EngineError> {
        let begin = Instant::now();
        // Each half runs on a thread of the pool from the start, so that no operation has to be
        // handed over to it.
        let read = rayon::scope(|_| self.prefill_target(chunks, None))?;
        for (at, token) in read.first().iter().enumerate() {
            // Before the draft reads the prompt, so that a client gets its first token earlier.
            token.iter().for_each(|token| first(at, token.clone()));
        }
        rayon::scope(|_| self.prefill_draft(chunks, read))?;
        self.prefilled += begin.elapsed();
        Ok(false)
    }

    fn collect_prefill(&mut self, _first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        Ok(())
    }

    fn prefill_time(&mut self) -> Result<Duration, EngineError> {
        Ok(std::mem::take(&mut self.prefilled))
    }
}

impl Decode for CpuBackend {
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        _captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        if self.draft.is_none()
            && let Some(shape) = shapes.iter().find(|shape| !shape.is_off())
        {
            return Err(EngineError::Configuration(format!(
                "the tree shape {shape} needs a draft, but none is loaded; give --speculative-draft-model-path"
            )));
        }
        let nodes = self.draft.as_ref().map_or(NodeSource::default(), |draft| draft.nodes());
        let has_states = self.caches.iter_mut().any(|cache| cache.states().is_some());
        shapes.iter().try_for_each(|shape| check_budget(*shape, nodes, has_states))?;
        expect_played(self.simulated.as_ref(), shapes)?;
        self.capture_sizes = capture_sizes.to_vec();
        self.follows = shapes.iter().any(|shape| !shape.is_off());
        if let Some(draft) = &self.draft {
            // Look-ups in texts keep nothing of a sequence here.
            self.follows &= !matches!(draft.nodes(), NodeSource::Text(_));
            shapes.iter().try_for_each(|shape| draft.nodes().check(*shape)).map_err(|error| {
                EngineError::Configuration(format!("the tree shape does not fit the draft: {error}"))
            })?;
            // Rows of drafts come after those of pages.
            let each = shapes.iter().map(|shape| draft.nodes().scratch_rows(*shape)).max().unwrap_or_default();
            let rows = self.capacity.pages * self.capacity.page_size + each * self.capacity.slots;
            self.draft_caches.iter_mut().for_each(|cache| cache.grow(rows));
        }
        Ok(())
    }

    fn launch_drafted(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError> {
        let output = rayon::scope(|_| self.run_round(round, drafted))?;
        Ok(self.finish(output))
    }

    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        match self.finished.front() {
            Some((launched, _)) if *launched == ticket => {}
            _ => return Err(EngineError::Device(format!("round {} was not launched, or is not next", ticket.0))),
        }
        let output = self.finished.pop_front().map(|(_, output)| output);
        output.ok_or_else(|| EngineError::Device("no round was launched".into()))
    }

    fn pending_draft_tokens(&self, slot: Slot) -> usize {
        self.slots.pending_draft_tokens(slot)
    }
}

impl Replay for CpuBackend {
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        self.start_trace(slot, positions, target)
    }

    fn state_row(&self) -> Option<StateRow> {
        self.kept_row()
    }

    fn prefill_traced(&mut self, chunks: &[PrefillChunk<'_>], states: TargetStates<'_>) -> Result<(), EngineError> {
        rayon::scope(|_| {
            let read = self.prefill_target(chunks, Some(states))?;
            expect_finite(read.first())?;
            self.prefill_draft(chunks, read)
        })
    }

    fn pools(&mut self, places: &[ReplayPlace<'_>], shapes: &[TreeShape]) -> Result<Vec<Pool>, EngineError> {
        rayon::scope(|_| self.run_pools(places, shapes))
    }

    fn probabilities(&mut self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        rayon::scope(|_| self.run_probabilities(requested))
    }
}

impl Measure for CpuBackend {
    fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        Ok(bandwidth::read_bandwidth())
    }

    fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.simulated = simulated;
        Ok(())
    }

    fn count_experts(&mut self, on: bool) -> Option<ExpertReads> {
        let draft = Self::draft_tallies(self.draft.as_deref());
        self.counted.set(on, self.target.tallies().chain(draft))
    }
}

impl Backend for CpuBackend {
    fn commit_memory(&mut self) {
        self.caches.iter_mut().chain(&mut self.draft_caches).for_each(Cache::clear);
    }

    fn exchange(&mut self, options: &EngineOptions, which: Exchange) -> Result<bool, EngineError> {
        match which {
            Exchange::Draft => {
                let Some(draft) = &mut self.draft else { return Ok(false) };
                *draft = load::other_draft(&**draft, &self.target, options)?;
            }
            Exchange::All => {
                (self.target, self.draft) = load::other_models(&self.target, self.draft.as_deref(), options)?;
            }
        }
        Ok(true)
    }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), ToOwned::to_owned)
}
