//! A backend that records what the scheduler does with it, in one list with the events that the
//! scheduler hands out.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use schemas::tree::TreeShape;

use crate::{
    backend::{
        Backend, Capacity, Decode, Describe, DeviceInfo, Drafted, Measure, PageId, Pool, Prefill, PrefillChunk,
        ProbabilityQuery, Replay, ReplayPlace, Round, RoundOutput, Slot, Slots, Snapshot, StateRow, TargetStates,
        Ticket, TokenLogprobs, WindowChange, WindowPages, Yield,
    },
    error::EngineError,
    played::Simulated,
    request::{Event, RequestId, SamplingParams},
    spec::ModelCost,
};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A prefill was called.
    Prefill,
    /// It returned.
    Prefilled,
    /// A round was launched.
    Launch,
    /// A round was collected.
    Collect,
    /// The first tokens of a prefill were waited for.
    CollectPrefill,
    /// A request was told about this many tokens.
    Tokens(RequestId, usize),
    /// A request was told about its end.
    Finished(RequestId),
}

/// The list. Clones share it.
#[derive(Clone, Default)]
pub struct Acts(Arc<Mutex<Vec<Act>>>);

/// A backend with its list.
pub struct Recording {
    backend: Box<dyn Backend>,
    acts: Acts,
    pages: usize,
    snapshots: Option<usize>,
    windows: Option<WindowPages>,
}

impl Acts {
    /// Records an event.
    pub fn event(&self, event: &Event) {
        self.push(match event {
            Event::Tokens { request, tokens, .. } => Act::Tokens(*request, tokens.len()),
            Event::Finished { request, .. } => Act::Finished(*request),
        });
    }

    /// The list since the last call.
    pub fn take(&self) -> Vec<Act> {
        std::mem::take(&mut *self.0.lock().expect("no panic while it was held"))
    }

    fn push(&self, act: Act) {
        self.0.lock().expect("no panic while it was held").push(act);
    }
}

impl Recording {
    /// Wraps a backend.
    pub fn new(backend: Box<dyn Backend>) -> (Self, Acts) {
        let acts = Acts::default();
        let Capacity { pages, snapshots, windows, .. } = backend.capacity();
        (Self { backend, acts: acts.clone(), pages, snapshots, windows }, acts)
    }

    /// Uses only this many pages.
    pub fn with_pages(self, pages: usize) -> Self {
        Self { pages, ..self }
    }

    /// Uses at most this many window pages.
    pub fn with_windows(self, most: usize) -> Self {
        let fewer = |windows: WindowPages| WindowPages { count: windows.count.min(most), ..windows };
        Self { windows: self.windows.map(fewer), ..self }
    }

    /// Uses at most this many snapshots.
    pub fn with_snapshots(self, most: usize) -> Self {
        Self { snapshots: self.snapshots.map(|snapshots| snapshots.min(most)), ..self }
    }
}

impl Describe for Recording {
    fn capacity(&self) -> Capacity {
        Capacity { pages: self.pages, snapshots: self.snapshots, windows: self.windows, ..self.backend.capacity() }
    }

    fn device(&self) -> DeviceInfo {
        self.backend.device()
    }

    fn looks_up(&self) -> bool {
        self.backend.looks_up()
    }

    fn cost(&self) -> ModelCost {
        self.backend.cost()
    }
}

impl Slots for Recording {
    fn open(
        &mut self,
        slot: Slot,
        sampling: &SamplingParams,
        pages: &[PageId],
        cached: usize,
    ) -> Result<(), EngineError> {
        self.backend.open(slot, sampling, pages, cached)
    }

    fn extend(&mut self, slot: Slot, pages: &[PageId]) -> Result<(), EngineError> {
        self.backend.extend(slot, pages)
    }

    fn change_windows(&mut self, changes: &[WindowChange]) -> Result<(), EngineError> {
        self.backend.change_windows(changes)
    }

    fn keep(&mut self, slot: Slot, to: Snapshot) -> Result<(), EngineError> {
        self.backend.keep(slot, to)
    }

    fn resume(&mut self, slot: Slot, from: Snapshot) -> Result<(), EngineError> {
        self.backend.resume(slot, from)
    }

    fn adjust(&mut self, slot: Slot, prompt: &[u32], output: &[u32], ends: &[u32]) -> Result<(), EngineError> {
        self.backend.adjust(slot, prompt, output, ends)
    }

    fn remember(&mut self, slot: Slot, prompt: &[u32], output: &[u32]) -> Result<(), EngineError> {
        self.backend.remember(slot, prompt, output)
    }

    fn prompt_logprobs(&mut self, slot: Slot) -> Vec<TokenLogprobs> {
        self.backend.prompt_logprobs(slot)
    }

    fn grammar_failure(&self, slot: Slot) -> Option<String> {
        self.backend.grammar_failure(slot)
    }

    fn close(&mut self, slot: Slot) {
        self.backend.close(slot);
    }
}

impl Prefill for Recording {
    fn prefill(
        &mut self,
        chunks: &[PrefillChunk<'_>],
        first: &mut dyn FnMut(usize, Yield),
    ) -> Result<bool, EngineError> {
        self.acts.push(Act::Prefill);
        let is_in_flight = self.backend.prefill(chunks, first)?;
        self.acts.push(Act::Prefilled);
        Ok(is_in_flight)
    }

    fn collect_prefill(&mut self, first: &mut dyn FnMut(usize, Yield)) -> Result<(), EngineError> {
        self.acts.push(Act::CollectPrefill);
        self.backend.collect_prefill(first)
    }

    fn prefill_time(&mut self) -> Result<Duration, EngineError> {
        self.backend.prefill_time()
    }
}

impl Decode for Recording {
    fn prepare(
        &mut self,
        shapes: &[TreeShape],
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        self.backend.prepare(shapes, capture_sizes, captured)
    }

    fn launch_drafted(&mut self, round: Round<'_>, drafted: Drafted<'_>) -> Result<Ticket, EngineError> {
        self.acts.push(Act::Launch);
        self.backend.launch_drafted(round, drafted)
    }

    fn collect(&mut self, ticket: Ticket) -> Result<RoundOutput, EngineError> {
        self.acts.push(Act::Collect);
        self.backend.collect(ticket)
    }

    fn pending_draft_tokens(&self, slot: Slot) -> usize {
        self.backend.pending_draft_tokens(slot)
    }
}

impl Replay for Recording {
    fn trace(&mut self, slot: Slot, positions: Range<usize>, target: bool) -> Result<(), EngineError> {
        self.backend.trace(slot, positions, target)
    }

    fn state_row(&self) -> Option<StateRow> {
        self.backend.state_row()
    }

    fn prefill_traced(&mut self, chunks: &[PrefillChunk<'_>], states: TargetStates<'_>) -> Result<(), EngineError> {
        self.backend.prefill_traced(chunks, states)
    }

    fn pools(&mut self, places: &[ReplayPlace<'_>], shapes: &[TreeShape]) -> Result<Vec<Pool>, EngineError> {
        self.backend.pools(places, shapes)
    }

    fn probabilities(&mut self, requested: &[ProbabilityQuery]) -> Result<Vec<Vec<f64>>, EngineError> {
        self.backend.probabilities(requested)
    }
}

impl Measure for Recording {
    fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        self.backend.measure_bandwidth()
    }

    fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.backend.simulate_acceptance(simulated)
    }
}

impl Backend for Recording {}
