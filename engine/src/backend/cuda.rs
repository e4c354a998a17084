//! The CUDA backend: all state of a round is on the device, and a round is one graph. The host
//! writes the slots of a round (a few bytes) and launches its graph, which writes its output to
//! page-locked host memory. Two rounds may be in flight, so the host's scheduling overlaps with the
//! device's work.

mod adjusted;
mod autotune;
mod bandwidth;
mod block_replay;
mod block_round;
mod compile;
mod confidence;
mod delta;
mod device_texts;
mod exchange;
mod expansion;
mod first_tokens;
mod gemm;
mod group;
mod host_drafts;
mod in_flight;
mod limits;
mod load;
mod look_ups;
mod machine;
mod meeting;
mod memory;
mod ops;
mod options;
mod part;
mod pass;
mod pending;
mod played;
mod played_trees;
mod prefill;
mod prefill_staging;
mod ranks;
mod replay;
mod round;
mod slot_states;
mod staging;
mod states;
mod supported;
#[cfg(test)]
mod tests;
mod verify;
mod weights;
mod window_passes;
mod windows;
mod workspace;

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use kernels::device::{Device, Graph, HostBuffer};
use schemas::tree::TreeShape;

use self::{
    first_tokens::PendingFirst,
    in_flight::InFlightRound,
    limits::MOST_CHOICES,
    look_ups::TextStaging,
    machine::Machine,
    part::RoundPart,
    prefill_staging::PrefillStaging,
    replay::CudaTrace,
    round::{RoundMemory, RoundOptions},
    staging::{RoundStaging, place_before, staging_of},
    windows::WindowStaging,
    workspace::{Activations, RoundArrays, RowArrays, WorkspaceShape},
};
use super::{
    Backend, Capacity, Decode, Describe, DeviceInfo, Drafted, Exchange, GpuState, Measure, PageId, Pool, Prefill,
    PrefillChunk, ProbabilityQuery, Replay, ReplayPlace, Round, RoundOutput, Slot, Slots, Snapshot, StateRow,
    TargetStates, Ticket, TokenLogprobs, WindowChange, Yield, expect_finite,
    expert_reads::{ExpertCount, ExpertReads},
    slot_table::SlotTable,
};
use crate::{
    adjust::Adjuster,
    error::EngineError,
    options::{EngineOptions, padded},
    played::{Simulated, expect_played},
    request::SamplingParams,
    spec::ModelCost,
};

pub use group::{RankGroup, SharedModels};
pub use load::load;
pub use machine::AttentionKernels;
pub use options::{CudaOptions, Models};
pub use weights::WeightSource;

/// A target, a draft and their caches on a GPU.
pub struct CudaBackend {
    machine: Machine,
    device: Device,
    device_name: String,
    options: CudaOptions,
    extent: WorkspaceShape,
    work: Activations,
    arrays: RowArrays,
    round: RoundArrays,
    graphs: HashMap<GraphKey, Graph>,
    capture_sizes: Vec<usize>,
    /// Total time of graph capture.
    capture_time: Duration,
    /// Whether the draft follows the sequences, because a shape speculates.
    follows: bool,
    /// How acceptance is simulated, if it is.
    simulated: Option<Simulated>,
    /// Whether rounds run part by part, so that each is timed.
    times_parts: bool,
    slots: SlotTable<OpenSlot>,
    /// Source of the copies of `open`, for each slot.
    slot_staging: HostBuffer,
    staging: Vec<RoundStaging>,
    window_staging: WindowStaging,
    text_staging: TextStaging,
    prefills: Vec<PrefillStaging>,
    /// The place in `prefills` of the next pass over prompts.
    next_prefill: usize,
    /// First tokens that have not been handed out.
    pending_first: VecDeque<PendingFirst>,
    /// Time of prefills that has not been reported.
    prefilled: Duration,
    /// The slots in device memory, for the next round; empty if the device holds something else.
    sent: Vec<i32>,
    flights: VecDeque<InFlightRound>,
    launched: u64,
    counted: ExpertCount,
}

/// Identifies a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GraphKey {
    shape: TreeShape,
    batch: usize,
    keep_pending: bool,
    describe: bool,
    simulation: Option<SimulationKey>,
    /// The part of a round; `None` for the whole round.
    part: Option<RoundPart>,
}

/// How a graph simulates acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SimulationKey {
    /// Bits of the simulated accept length.
    Length(u32),
    /// From the tables of texts.
    Played,
}

/// The host's state of an open slot.
struct OpenSlot {
    /// Pages that hold its positions, in order.
    pages: Vec<u32>,
    /// Number of tokens of a reused prefix.
    opened_at: usize,
    /// Number of prompt tokens in the cache.
    read: usize,
    /// Number of alternatives whose log-probabilities are requested; `None` for no
    /// log-probabilities.
    logprobs: Option<usize>,
    /// How its tokens are chosen.
    sampling: SamplingParams,
    /// Number of positions at its end that the draft has not processed.
    pending: usize,
    /// States kept for replay.
    trace: Option<CudaTrace>,
    /// Changes its logits, if requested.
    adjuster: Option<Adjuster>,
    /// Log-probabilities of the prompt so far, if requested.
    prompt_logprobs: Vec<TokenLogprobs>,
}

impl CudaBackend {
    /// The graph's batch size for this many requests: the next capture size.
    fn padded(&self, requests: usize) -> usize {
        padded(&self.capture_sizes, requests)
    }

    /// Whether a round of this shape leaves its tokens for the draft to process later.
    fn leaves_pending(&self, shape: TreeShape) -> bool {
        self.follows && shape.is_off()
    }

    /// Whether rounds run kernel by kernel, without graphs.
    fn runs_eagerly(&self) -> bool {
        self.options.disable_cuda_graph || self.counted.is_on()
    }

    fn simulation_key(&self) -> Option<SimulationKey> {
        self.simulated.as_ref().map(|simulated| match simulated {
            Simulated::Length(length) => SimulationKey::Length(length.to_bits()),
            Simulated::Played(_) => SimulationKey::Played,
        })
    }

    fn round_options(&self, key: GraphKey) -> RoundOptions {
        RoundOptions {
            keep_pending: key.keep_pending,
            describe: key.describe,
            simulate: match key.simulation {
                Some(SimulationKey::Length(bits)) => Some(f32::from_bits(bits)),
                _ => None,
            },
        }
    }

    /// Launches the kernels of a round without a graph.
    fn run_eagerly(&self, key: GraphKey) -> Result<(), EngineError> {
        let memory = RoundMemory { work: &self.work, arrays: &self.arrays, round: &self.round };
        Ok(self.machine.round(key.parts(), memory, key.shape, key.batch, self.round_options(key))?)
    }

    /// Launches a round or a part of it, by graph if there is one.
    fn run(&self, key: GraphKey) -> Result<(), EngineError> {
        match self.graphs.get(&key).filter(|_| !self.runs_eagerly()) {
            Some(graph) => Ok(self.device.run(graph)?),
            None => self.run_eagerly(key),
        }
    }

    /// Captures a round or a part of it. The first run is eager: kernels are loaded, and GEMMs
    /// planned and timed, outside of the capture; kernels that are equally fast alone are then
    /// compared within the round.
    fn capture(&mut self, key: GraphKey) -> Result<(), EngineError> {
        if self.graphs.contains_key(&key) {
            return Ok(());
        }
        // The extra slot after the last: the runs below must not write to a slot of a request.
        let padding = vec![self.machine.capacity.slots as i32; key.batch];
        self.device.write(self.round.slot.slice(), &padding)?;
        self.sent = padding;
        if self.machine.host_nodes.is_some() || self.machine.joins_chains {
            // What the host has drafted for a batch of another size is nothing for this one.
            self.device.fill(self.round.given.slice(), 0)?;
        }
        // A whole round even if only a part is captured, since a part works on the results of the
        // parts before it.
        self.machine.gemm.searching(|| self.run_eagerly(GraphKey { part: None, ..key }))?;
        let graph = self.recorded(key)?;
        // Only now are all products of the round known; they are compared within the graph.
        let graph = self.tune_in_graph(key, graph)?;
        self.graphs.insert(key, graph);
        // Ranks that capture ahead of others could launch rounds that wait for a rank's old graph.
        self.machine.meet()?;
        Ok(())
    }

    /// Captures a round or a part of it as a graph.
    fn recorded(&self, key: GraphKey) -> Result<Graph, EngineError> {
        let memory = RoundMemory { work: &self.work, arrays: &self.arrays, round: &self.round };
        let options = self.round_options(key);
        self.step_back()?;
        Ok(self.device.capture(|| self.machine.round(key.parts(), memory, key.shape, key.batch, options))?)
    }

    /// Resets the output place on the device, so that the next round advances to its own,
    /// regardless of what ran since the last.
    fn step_back(&self) -> Result<(), EngineError> {
        // A run advances the place in the ring of outputs, and trial runs must not count.
        Ok(self.device.write(self.round.output_place.slice(), &[place_before(self.launched) as i32])?)
    }

    /// Reallocates buffers that are too small. Graphs hold the addresses of the old ones.
    fn grow(&mut self, extent: WorkspaceShape) -> Result<(), EngineError> {
        if self.extent.holds(extent) {
            return Ok(());
        }
        let extent = self.extent.and(extent);
        self.device.synchronize()?;
        // Graphs contain the addresses of the buffers that are replaced.
        self.graphs.clear();
        memory::check_work(&self.machine, &self.device, self.extent, extent)?;
        // Free the old buffers first: old and new together may not fit.
        let empty = WorkspaceShape::of_prefill(1);
        self.work = Activations::new(&self.device, &memory::sizes(&self.machine), empty)?;
        self.work = Activations::new(&self.device, &memory::sizes(&self.machine), extent)?;
        self.arrays = RowArrays::of_target(&self.device, extent, self.machine.windows.is_some())?;
        self.round = RoundArrays::new(&self.device, &memory::sizes(&self.machine), extent)?;
        self.staging = staging_of(&self.device, extent)?;
        self.step_back()?;
        self.sent.clear();
        // Rows of drafts lie after those of pages in the draft's cache, so they grow separately.
        let scratch = extent.scratch * extent.batch;
        if scratch > self.machine.scratch_rows {
            memory::grow_scratch(&mut self.machine, scratch)?;
        }
        self.extent = extent;
        Ok(self.machine.meet()?)
    }
}

impl GraphKey {
    /// The parts of a round that the graph contains.
    fn parts(&self) -> &[RoundPart] {
        self.part.as_ref().map_or(&RoundPart::ALL, std::slice::from_ref)
    }
}

impl Describe for CudaBackend {
    fn capacity(&self) -> Capacity {
        self.machine.capacity
    }

    fn device(&self) -> DeviceInfo {
        let properties = self.device.properties();
        DeviceInfo {
            device: self.device_name.clone(),
            name: properties.name.clone(),
            driver: properties.driver.clone(),
            units: properties.multiprocessors,
        }
    }

    fn cost(&self) -> ModelCost {
        self.machine.cost
    }

    fn looks_up(&self) -> bool {
        self.machine.texts.is_some()
    }
}

impl Slots for CudaBackend {
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        self.slots.check_open(slot, pages, cached)?;
        let at = slot.0 as usize;
        self.write_slot(at, sampling, pages, cached)?;
        if let Some(states) = &self.machine.states {
            // The state of the slot's previous request would otherwise be continued.
            states.reset(&self.device, at)?;
        }
        let pages = pages.iter().map(|page| page.0).collect();
        let logprobs = sampling.logprobs.map(|count| count.min(MOST_CHOICES));
        let open = OpenSlot {
            pages,
            opened_at: cached,
            read: cached,
            logprobs,
            sampling: sampling.clone(),
            pending: 0,
            trace: None,
            adjuster: None,
            prompt_logprobs: Vec::new(),
        };
        self.slots.open(slot, open)
    }

    fn extend(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError> {
        self.add_pages(slot, pages)
    }

    fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        self.send_windows(changes)
    }

    fn keep(&mut self, slot: Slot, to: Snapshot) -> Result<(), EngineError> {
        self.copy_state(slot, to, |slot, snapshot| (slot, snapshot))
    }

    fn resume(&mut self, slot: Slot, from: Snapshot) -> Result<(), EngineError> {
        self.copy_state(slot, from, |slot, snapshot| (snapshot, slot))
    }

    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError> {
        let open = self.slots.get_mut(slot)?;
        open.adjuster = Some(Adjuster::after(&open.sampling.adjustments, prompt, output, ends));
        Ok(())
    }

    fn remember(&mut self, slot: Slot, prompt: &[u32], output: &[u32]) -> Result<(), EngineError> {
        self.send_text(slot, prompt, output)
    }

    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs> {
        let open = self.slots.find_mut(slot);
        open.map(|open| std::mem::take(&mut open.prompt_logprobs)).unwrap_or_default()
    }

    fn grammar_failure(&self, slot: Slot) -> Option<String> {
        self.adjuster(slot)?.failure().map(ToOwned::to_owned)
    }

    fn close(&mut self, slot: Slot) {
        self.slots.close(slot);
    }
}

impl Prefill for CudaBackend {
    fn prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<bool, EngineError> {
        self.run_prefill(chunks, None, first)?;
        Ok(!self.pending_first.is_empty())
    }

    fn collect_prefill(&mut self, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        self.hand_out_first(first)
    }

    fn prefill_time(&mut self) -> Result<Duration, EngineError> {
        self.time_prefills()
    }
}

impl Decode for CudaBackend {
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        let slots = self.machine.capacity.slots;
        let mut sizes: Vec<usize> = capture_sizes.iter().copied().filter(|size| (1..=slots).contains(size)).collect();
        // Batches above the last capture size run in graphs of exactly their size, captured on
        // first use.
        sizes.sort_unstable();
        sizes.dedup();
        let largest = slots;
        shapes.iter().try_for_each(|shape| supported::check_shape(&self.machine, *shape))?;
        expect_played(self.simulated.as_ref(), shapes)?;
        self.grow(WorkspaceShape::of_rounds(self.machine.nodes(), shapes, largest))?;
        self.capture_sizes = sizes;
        self.follows = self.machine.draft.is_some() && shapes.iter().any(|shape| !shape.is_off());
        // Graphs of parts are few, and captured on first use.
        if self.options.disable_cuda_graph || self.times_parts {
            return Ok(());
        }
        let begin = Instant::now();
        let simulation = self.simulation_key();
        // The largest first, so that the library memory that it needs is already allocated for the
        // others.
        let key = |batch: usize, shape: TreeShape| GraphKey {
            shape,
            batch,
            keep_pending: self.leaves_pending(shape),
            simulation,
            describe: false,
            part: None,
        };
        let batches = self.capture_sizes.iter().rev();
        let keys: Vec<GraphKey> = batches.flat_map(|batch| shapes.iter().map(|shape| key(*batch, *shape))).collect();
        for (at, key) in keys.iter().enumerate() {
            captured(at, keys.len());
            self.capture(*key)?;
        }
        self.device.synchronize()?;
        self.capture_time += begin.elapsed();
        Ok(())
    }

    fn launch_drafted(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError> {
        self.launch_round(round, drafted)
    }

    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        self.collect_round(ticket)
    }

    fn pending_draft_tokens(&self, slot: Slot) -> usize {
        self.slots.find(slot).map_or(0, |open| open.pending)
    }
}

impl Replay for CudaBackend {
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        self.start_trace(slot, positions, target)
    }

    fn state_row(&self) -> Option<StateRow> {
        self.kept_row()
    }

    fn prefill_traced(&mut self, chunks: &[PrefillChunk<'_>], states: TargetStates<'_>) -> Result<(), EngineError> {
        self.check_traced(chunks, &states)?;
        let mut first = Vec::new();
        self.run_prefill(chunks, Some(states), &mut |_, one| first.push(Some(one)))?;
        // A replay never continues these sequences; the tokens only show that the logits are
        // finite.
        self.hand_out_first(&mut |_, one| first.push(Some(one)))?;
        expect_finite(&first)
    }

    fn pools(&mut self, places: &[ReplayPlace<'_>], shapes: &[TreeShape]) -> Result<Vec<Pool>, EngineError> {
        self.run_pools(places, shapes)
    }

    fn probabilities(&mut self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        self.run_probabilities(requested)
    }
}

impl Measure for CudaBackend {
    fn gpu_state(&self) -> Option<GpuState> {
        self.device.state()
    }

    fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        bandwidth::copy_bandwidth(&self.device)
    }

    fn product_rate(&self) -> Option<f64> {
        // Large products in 2-byte types sustain this on 132 multiprocessors of a Hopper GPU, at
        // the clock that its power allows; for other devices nothing was measured.
        const HOPPER: f64 = 0.66e15;
        let properties = self.device.properties();
        let known = properties.is_hopper() && !properties.emulated && self.machine.cost.element == 2;
        known.then(|| HOPPER * properties.multiprocessors as f64 / 132.0)
    }

    fn capture_time(&self) -> Option<Duration> {
        Some(self.capture_time)
    }

    fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.set_simulation(simulated)
    }

    fn time_parts(&mut self, on: bool) {
        self.times_parts = on;
        if !on {
            // Frees the memory of graphs of parts, so that whole rounds are measured without them.
            self.graphs.retain(|key, _| key.part.is_none());
        }
    }

    fn count_experts(&mut self, on: bool) -> Option<ExpertReads> {
        self.counted.set(on, self.machine.target_tallies().chain(self.machine.draft_tallies()))
    }
}

impl Backend for CudaBackend {
    fn exchange(&mut self, options: &EngineOptions, which: Exchange) -> Result<bool, EngineError> {
        self.take_weights(options, which)
    }
}
