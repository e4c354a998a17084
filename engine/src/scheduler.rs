//! Continuous batching: which requests run, on which pages, and when they end.

mod admission;
#[cfg(test)]
mod fake;
mod growth;
mod prefill;
#[cfg(test)]
mod recording;
mod round;
mod running;
mod snapshots;
mod statistics;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use schemas::tree::TreeShape;

pub use self::statistics::{RanRound, Statistics};
use self::{
    admission::Limits,
    prefill::LaunchedPrefill,
    round::LaunchedRound,
    running::{ScheduledRequest, SlotAllocation},
    snapshots::Snapshots,
};
pub use crate::pages::prefix::Reuse;
use crate::{
    adjust::Adjustments,
    backend::{Backend, Capacity, Exchange, ExpertReads, Slot},
    error::EngineError,
    new_token_ratio::NewTokenRatio,
    options::{EngineOptions, ShapePolicy},
    pages::{
        PagePool, WindowPool,
        prefix::{PageKey, PageKeys},
    },
    played::Simulated,
    request::{Event, FinishReason, Request, RequestId},
    spec::TextSpec,
    text::Text,
    text_drafts::{SecondSource, TextDrafts},
};

/// Properties of the model that the scheduler needs.
#[derive(Clone, Debug, Default)]
pub struct ModelEnds {
    /// Tokens that end the output, except for requests that ignore them.
    pub end_tokens: Vec<u32>,
    /// Tokenizer and chat template, if there are any.
    pub text: Option<Text>,
}

impl ModelEnds {
    /// Tokens that end the output of a request. After the end of a grammar nothing can follow, so
    /// its end is never ignored.
    fn ends(&self, request: &Request) -> Vec<u32> {
        let (stop, grammar) = (&request.stop, &request.sampling.adjustments.grammar);
        let model = if stop.ignore_eos && grammar.is_none() { &[][..] } else { &self.end_tokens };
        stop.stop_token_ids.iter().chain(model).copied().collect()
    }
}

/// Options of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Maximum number of running requests.
    pub largest_batch: usize,
    /// Maximum number of prompt tokens per step.
    pub prefill_budget: usize,
    /// What the prefix cache keeps of requests that have ended.
    pub reuse: Reuse,
}

/// Schedules requests on a backend. Sequences take pages as they grow: a request is admitted when
/// the free and evictable pages are expected to be enough, and when they are not, the youngest one
/// is put back into the queue.
pub struct Scheduler {
    backend: Box<dyn Backend>,
    model: ModelEnds,
    policy: ShapePolicy,
    options: SchedulerOptions,
    waiting: VecDeque<Waiting>,
    running: Vec<ScheduledRequest>,
    in_flight: VecDeque<InFlight>,
    /// Whether a prefill was launched after the last round.
    untimed_prefill: bool,
    cancelled: Vec<RequestId>,
    slots: Vec<Slot>,
    pages: PagePool,
    /// Kept states, if sequences have a state beside their pages.
    snapshots: Option<Snapshots>,
    statistics: Statistics,
    ratio: NewTokenRatio,
    /// The shape of the last round: those of requests with different limits take turns.
    last_shape: TreeShape,
    submitted: u64,
    /// Texts in which drafts are looked up, if the backend has no draft. If the backend looks them
    /// up by itself, they tell how many there were.
    texts: Option<TextDrafts>,
    /// What the host looks up beside the draft of the backend.
    second_source: Option<SecondSource>,
    /// Time of keeping texts since the last round was launched.
    kept_texts: Duration,
    /// Whether requests stay in the queue.
    holds_queue: bool,
}

struct Waiting {
    id: RequestId,
    request: Request,
    /// Maximum number of positions that it can fill, including the tree of its last round.
    positions: usize,
    /// Keys of the prompt's pages that may be reused: never of the page with its last token, which
    /// always runs.
    keys: PageKeys,
    submitted: Instant,
    /// Its state, including output, if it was retracted.
    retracted: Option<Box<ScheduledRequest>>,
}

/// Fewer tokens than this are prefilled rather than waited for (SGLang's threshold for prompts in
/// one batch).
const WORTH_WAITING: usize = 32;

/// What the device has been asked to do and the host has not collected, in order.
enum InFlight {
    Round(LaunchedRound),
    Prefill(LaunchedPrefill),
}

impl Scheduler {
    /// A scheduler for a backend that is prepared for the policy's shapes.
    pub fn new(
        backend: Box<dyn Backend>,
        model: ModelEnds,
        policy: ShapePolicy,
        mut options: SchedulerOptions,
    ) -> Self {
        let capacity = backend.capacity();
        options.largest_batch = options.largest_batch.clamp(1, capacity.slots);
        // With a budget of zero no prompt would ever be read, and the queue would wait forever.
        options.prefill_budget = options.prefill_budget.max(1);
        Self {
            // Reversed, since slots are taken from the end: small batches use the lowest ones.
            slots: (0..options.largest_batch as u32).rev().map(Slot).collect(),
            pages: PagePool::new(&capacity),
            snapshots: capacity.snapshots.map(Snapshots::new),
            statistics: Statistics {
                pages_total: capacity.pages,
                snapshots_total: capacity.snapshots.unwrap_or_default(),
                window_pages_total: capacity.windows.map_or(0, |windows| windows.count),
                ..Statistics::default()
            },
            options,
            waiting: VecDeque::new(),
            running: Vec::new(),
            in_flight: VecDeque::new(),
            untimed_prefill: false,
            cancelled: Vec::new(),
            ratio: NewTokenRatio::default(),
            last_shape: TreeShape::OFF,
            submitted: 0,
            texts: None,
            second_source: None,
            kept_texts: Duration::ZERO,
            holds_queue: false,
            backend,
            model,
            policy,
        }
    }

    /// The same with drafts that are looked up in texts by a rule.
    #[must_use]
    pub fn with_texts(self, rule: Option<TextSpec>) -> Self {
        Self { texts: rule.map(TextDrafts::new), ..self }
    }

    /// The same with look-ups beside the draft of the backend.
    #[must_use]
    pub fn with_second_source(self, rule: Option<TextSpec>) -> Self {
        let by_host = rule.filter(|_| !self.backend.looks_up());
        Self { second_source: by_host.map(SecondSource::new), ..self }
    }

    /// Whether the host looks drafts up after the last token, which it has to know. Without
    /// speculation there is nothing to look up: texts are neither kept nor waited for.
    fn looks_up(&self) -> bool {
        let by_host = (self.texts.is_some() && !self.backend.looks_up()) || self.second_source.is_some();
        by_host && self.policy.speculates()
    }

    /// Whether the next round needs look-ups, before which the tokens of all rounds must be known.
    fn waits_for_tokens(&self) -> bool {
        self.looks_up() && self.next_shape().is_some_and(|next| !next.runs.is_off())
    }

    /// The device.
    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// Counters since the start, and what is running now.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Tokens that end an output, except for requests that ignore them.
    pub fn end_tokens(&self) -> &[u32] {
        &self.model.end_tokens
    }

    /// Maximum number of running requests.
    pub fn largest_batch(&self) -> usize {
        self.options.largest_batch
    }

    /// Checks that no request is queued or running, after collecting rounds that were launched
    /// ahead for requests that have since ended. `what` is the action that the error message says
    /// is possible only while idle.
    ///
    /// # Errors
    /// When a request is queued or running, or the device fails.
    pub fn expect_idle(&mut self, what: &str) -> Result<(), EngineError> {
        let all_ended = |running: &[ScheduledRequest]| running.iter().all(|running| running.finished().is_some());
        // An ended request keeps its slot until the rounds in flight that include it are collected,
        // so a few steps without new work make the engine idle.
        while self.waiting.is_empty() && !self.is_idle() && all_ended(&self.running) {
            self.step(&mut |_| {})?;
        }
        if self.is_idle() {
            return Ok(());
        }
        Err(EngineError::Configuration(format!("{what} only while no request runs")))
    }

    /// Ends the thread of one rank of a group; see [`Backend::kill_rank`].
    pub fn kill_rank(&mut self, rank: usize) {
        self.backend.kill_rank(rank);
    }

    /// Simulates acceptance from now on; see
    /// [`Measure::simulate_acceptance`](crate::backend::Measure::simulate_acceptance).
    ///
    /// # Errors
    /// When a request is running, or memory is missing.
    pub fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.expect_idle("acceptance can be simulated")?;
        self.options.reuse = self.options.reuse.under_simulation(simulated.is_some());
        self.backend.simulate_acceptance(simulated)
    }

    /// Turns timing of the parts of rounds on or off; see
    /// [`Measure::time_parts`](crate::backend::Measure::time_parts).
    ///
    /// # Errors
    /// When a request is running.
    pub fn time_parts(&mut self, on: bool) -> Result<(), EngineError> {
        self.expect_idle("how rounds run can change")?;
        self.backend.time_parts(on);
        Ok(())
    }

    /// Starts or stops to count the experts that rounds read; see
    /// [`Measure::count_experts`](crate::backend::Measure::count_experts).
    ///
    /// # Errors
    /// When a request is running.
    pub fn count_experts(&mut self, on: bool) -> Result<Option<ExpertReads>, EngineError> {
        self.expect_idle("experts can be counted")?;
        Ok(self.backend.count_experts(on))
    }

    /// Changes what the prefix cache keeps of requests that end, and clears it.
    ///
    /// # Errors
    /// When a request is running.
    pub fn set_reuse(&mut self, reuse: Reuse) -> Result<(), EngineError> {
        self.expect_idle("the prefix cache can change")?;
        self.forget_prefixes();
        self.options.reuse = reuse;
        Ok(())
    }

    /// Clears the prefix cache, and forgets the texts in which drafts are looked up.
    ///
    /// # Errors
    /// When a request is running.
    pub fn flush_cache(&mut self) -> Result<(), EngineError> {
        // Queued requests hold no pages.
        if !self.nothing_runs() {
            self.expect_idle("the prefix cache can be flushed")?;
        }
        self.forget_texts();
        self.forget_prefixes();
        self.statistics.pages_cached = 0;
        Ok(())
    }

    /// Drops all evictable pages, and all kept states.
    fn forget_prefixes(&mut self) {
        self.pages.clear();
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.clear();
        }
        self.statistics.snapshots_kept = 0;
    }

    /// Whether no request is queued or running.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Lends the device with all its slots and pages, while no request is running. Clears the
    /// prefix cache. The borrower must close every slot that it opens, and take back the window
    /// pages that it gives to pages.
    ///
    /// # Errors
    /// When a request is running, or the device fails.
    pub fn lend(&mut self) -> Result<&mut dyn Backend, EngineError> {
        self.expect_idle("texts can be replayed")?;
        self.forget_prefixes();
        self.statistics.pages_cached = 0;
        self.change_windows()?;
        Ok(self.backend.as_mut())
    }

    /// Replaces weights; returns whether the backend can do so. See [`Backend::exchange`]. Running
    /// requests continue with their KV cache. `flush` clears the prefix cache.
    ///
    /// # Errors
    /// When the weights do not fit, or with `flush` a request is running.
    pub fn exchange(&mut self, options: &EngineOptions, which: Exchange, flush: bool) -> Result<bool, EngineError> {
        // Refused before anything is exchanged: half of the command must not take effect.
        if flush && !self.nothing_runs() {
            return Err(EngineError::Configuration(
                "the prefix cache can be flushed only while no request runs: retract or abort the running ones, or do \
                 not flush it"
                    .into(),
            ));
        }
        let exchanged = self.backend.exchange(options, which)?;
        if exchanged && flush {
            self.forget_prefixes();
            self.statistics.pages_cached = 0;
        }
        Ok(exchanged)
    }

    /// Whether no request holds a slot; some may be queued.
    pub fn nothing_runs(&self) -> bool {
        self.running.is_empty()
    }

    /// Keeps all requests in the queue from now on, or admits them again.
    pub fn hold_queue(&mut self, hold: bool) {
        self.holds_queue = hold;
    }

    /// Ends cancelled requests and collects launched rounds, without starting new work.
    ///
    /// # Errors
    /// When the device fails.
    pub fn settle(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        self.statistics.ran.clear();
        self.end_cancelled(events);
        while !self.in_flight.is_empty() {
            self.collect(events)?;
        }
        self.count();
        Ok(())
    }

    /// Commits the memory of the caches; see [`Backend::commit_memory`].
    ///
    /// # Errors
    /// When a request is running.
    pub fn commit_memory(&mut self) -> Result<(), EngineError> {
        self.flush_cache()?;
        self.backend.commit_memory();
        Ok(())
    }

    /// Changes the policy while idle; `captured` reports graphs as in
    /// [`Decode::prepare`](crate::backend::Decode::prepare).
    ///
    /// # Errors
    /// When requests are running, or the backend cannot run a shape.
    pub fn set_policy(
        &mut self,
        policy: ShapePolicy,
        capture_sizes: &[usize],
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        self.expect_idle("the tree shapes can change")?;
        let shapes: Vec<_> = policy.shapes().collect();
        self.backend.prepare(&shapes, capture_sizes, captured)?;
        self.forget_texts();
        // Outputs generated without speculation have no rows in the draft's cache.
        if policy.speculates() && !self.policy.speculates() {
            self.forget_prefixes();
        }
        self.policy = policy;
        Ok(())
    }

    /// Checks a request and queues it.
    ///
    /// # Errors
    /// When the request can never run.
    pub fn submit(&mut self, mut request: Request) -> Result<RequestId, EngineError> {
        let limits = self.limits();
        // Clients write out values that have no effect.
        if request.sampling.adjustments.change_nothing(&self.model.ends(&request)) {
            request.sampling.adjustments = Adjustments::default();
        }
        let positions = limits.admit(&mut request)?;
        self.submitted += 1;
        let id = RequestId(self.submitted);
        let keys = self.keys(&request, &request.input_ids);
        self.waiting.push_back(Waiting { id, request, positions, keys, submitted: Instant::now(), retracted: None });
        self.statistics.waiting = self.waiting.len();
        Ok(id)
    }

    fn limits(&self) -> Limits {
        Limits {
            capacity: self.backend.capacity(),
            tree: self.policy.shapes().map(|shape| shape.num_draft_tokens).max().unwrap_or(1)
                + self.backend.capacity().draft_ahead,
            tokens_a_round: self.policy.shapes().map(TreeShape::max_tokens_per_round).max().unwrap_or(1),
            has_text: self.model.text.is_some(),
        }
    }

    /// Keys of the pages of a request's tokens that may be reused.
    fn keys(&self, request: &Request, to_read: &[u32]) -> PageKeys {
        let mut keys = PageKeys::new(self.backend.capacity().page_size);
        if self.options.reuse != Reuse::Off {
            // Log-probabilities of a prompt must be computed, so these positions are never taken
            // from the cache.
            let reported = request.sampling.prompt_logprobs.map_or(usize::MAX, |reported| reported.from);
            keys.extend(&to_read[..reported.min(to_read.len())]);
        }
        keys
    }

    /// Ends a request with the next step. Ids that are not queued or running are ignored.
    pub fn cancel(&mut self, id: RequestId) {
        let queued = self.waiting.iter().any(|waiting| waiting.id == id);
        if queued || self.running.iter().any(|running| running.id() == id) {
            self.cancelled.push(id);
        }
    }

    /// Ends all requests with the next step.
    pub fn cancel_all(&mut self) {
        let queued = self.waiting.iter().map(|waiting| waiting.id);
        self.cancelled.extend(queued.chain(self.running.iter().map(ScheduledRequest::id)));
    }

    /// Ends cancelled requests, gives running ones the pages for the next round, admits the
    /// requests that fit, launches the prefill of prompts and a round, and collects the prefill and
    /// the oldest rounds beyond those that the backend keeps in flight. `events` receives each
    /// event as soon as it is known, those of a request in order. It must return quickly: the
    /// device may be idle meanwhile.
    ///
    /// # Errors
    /// When the device fails.
    pub fn step(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        self.statistics.ran.clear();
        self.end_cancelled(events);
        if self.running.is_empty() {
            // Whose turn it is does not depend on earlier runs.
            self.last_shape = TreeShape::OFF;
        }
        // Before the queue is admitted: a new request could take the pages that a running one needs
        // for its next round, which would then be retracted.
        self.make_room(events)?;
        self.admit()?;
        self.prefill(events)?;
        // Texts are continued after their newest token, so the host must have all tokens before it
        // looks up drafts.
        while self.waits_for_tokens() && !self.in_flight.is_empty() {
            self.collect(events)?;
        }
        let launched = self.launch()?;
        // Rounds stay in flight as long as there is more work, and the next needs no look-ups.
        let stays = launched && !self.waits_for_tokens();
        let keep = if stays { self.backend.capacity().rounds_in_flight.max(1) - 1 } else { 0 };
        // A prefill is never left for the next step: its first tokens are handed out while the
        // round that was launched after it runs.
        let is_prefill = |work: &InFlight| matches!(work, InFlight::Prefill(_));
        while self.in_flight.len() > keep || self.in_flight.iter().any(is_prefill) {
            self.collect(events)?;
        }
        if self.untimed_prefill {
            self.time_prefills()?;
        }
        self.count();
        Ok(())
    }

    /// Updates the counts of requests and pages.
    fn count(&mut self) {
        self.statistics.waiting = self.waiting.len();
        self.statistics.waiting_retracted = self.waiting.iter().filter(|waiting| waiting.retracted.is_some()).count();
        self.statistics.running = self.running.iter().filter(|running| running.finished().is_none()).count();
        self.statistics.new_token_ratio = self.ratio.value();
        self.statistics.pages_cached = self.pages.kept();
        self.statistics.snapshots_kept = self.snapshots.as_ref().map_or(0, Snapshots::kept);
        self.statistics.window_pages_used = self.pages.windows().map_or(0, WindowPool::used);
        self.statistics.window_pages_cached = self.pages.windows().map_or(0, WindowPool::kept);
        self.statistics.pages_used = self.statistics.pages_total - self.pages.free() - self.pages.kept();
    }

    fn end_cancelled(&mut self, events: &mut dyn FnMut(Event)) {
        for id in std::mem::take(&mut self.cancelled) {
            if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id)
                && let Some(waiting) = self.waiting.remove(at)
            {
                let mut running = match waiting.retracted {
                    // It was retracted, and its client gets the output so far.
                    Some(running) => *running,
                    None => ScheduledRequest::new(waiting.id, waiting.request, waiting.submitted, None, &self.model),
                };
                running.end(FinishReason::Cancelled);
                self.end_texts(&running);
                running.take_events().into_iter().for_each(&mut *events);
                self.statistics.finished(&FinishReason::Cancelled);
            }
            // It keeps its slot while rounds in flight write to it; `sweep` releases it after the
            // last.
            if let Some(running) = self.running.iter_mut().find(|running| running.id() == id) {
                running.end(FinishReason::Cancelled);
            }
        }
        self.sweep(events);
    }

    /// First come, first served: a request that does not fit blocks the later ones, so that it is
    /// not starved.
    fn admit(&mut self) -> Result<(), EngineError> {
        let page_size = self.backend.capacity().page_size;
        let mut promised = self.promised();
        while let Some(next) = self.waiting.front().filter(|_| !self.holds_queue) {
            // Requests start in their order: if smaller ones overtook the first, a large one might
            // never find enough pages.
            if self.slots.is_empty() || self.is_being_read(next) {
                break;
            }
            let keys = next.keys.all();
            let usable = self.usable(keys);
            let keeps = self.places_to_keep(keys, usable);
            let needs = self.needs(next);
            if needs.expected.saturating_sub(usable) + promised > self.pages.available(&keys[..usable]) {
                break;
            }
            let Some((pages, shared)) = self.pages.open(&keys[..usable], needs.start) else { break };
            // What it will still take is not available to the requests after it.
            promised += needs.expected - needs.start;
            let (Some(slot), Some(next)) = (self.slots.pop(), self.waiting.pop_front()) else { break };
            let cached = shared * page_size;
            let sampling = &next.request.sampling;
            self.backend.open(slot, sampling, pages.ids(), cached)?;
            // Its first piece starts after the cached positions, so it needs the state after these.
            if let (Some(kept), Some(key)) = (&mut self.snapshots, next.keys.within(cached).last()) {
                let state = kept.take(key).ok_or_else(|| EngineError::Device("a kept state is missing".into()))?;
                self.backend.resume(slot, state)?;
            }
            if sampling.adjustments != Adjustments::default() {
                // A retracted request continues after its own output, which penalties and grammars
                // have seen.
                let output = next.retracted.as_ref().map_or(&[][..], |running| running.output());
                self.backend.adjust(slot, &next.request.input_ids, output, &self.model.ends(&next.request))?;
            }
            if self.backend.looks_up() {
                let output = next.retracted.as_ref().map_or(&[][..], |running| running.output());
                self.backend.remember(slot, &next.request.input_ids, output)?;
            }
            let place = SlotAllocation { slot, pages, keys: next.keys, cached, keeps };
            if let Some(mut running) = next.retracted {
                running.resume(place);
                self.running.push(*running);
                continue;
            }
            self.statistics.prompt_tokens += next.request.input_ids.len() as u64;
            self.statistics.cached_tokens += cached as u64;
            self.running.push(ScheduledRequest::new(next.id, next.request, next.submitted, Some(place), &self.model));
        }
        Ok(())
    }

    /// Number of a prompt's leading pages in the cache after which a request can continue: with the
    /// window before for layers that see no more, and with the state for layers that keep one.
    fn usable(&self, keys: &[PageKey]) -> usize {
        let mut usable = self.pages.find_usable(keys);
        let Some(kept) = &self.snapshots else { return usable };
        loop {
            // Pages and states are dropped independently, so the longest prefix with both is
            // searched in turns. Each turn can only shorten it, so the search ends.
            let with_state = kept.find(&keys[..usable]);
            usable = self.pages.find_usable(&keys[..with_state]);
            if usable == with_state {
                return usable;
            }
        }
    }

    /// Tells the device about changes of window pages.
    fn change_windows(&mut self) -> Result<(), EngineError> {
        let changes = self.pages.take_window_changes();
        if changes.is_empty() { Ok(()) } else { self.backend.change_windows(&changes) }
    }

    /// Numbers of leading pages after which the state of a prompt is worth keeping, ascending:
    /// where it leaves the pages of earlier prompts, and where its last full page ends. Only after
    /// the first `usable`.
    fn places_to_keep(&self, keys: &[PageKey], usable: usize) -> Vec<usize> {
        if self.snapshots.is_none() {
            return Vec::new();
        }
        let Capacity { page_size, state_chunk, .. } = self.backend.capacity();
        // The smallest number of pages that ends with a chunk.
        let unit =
            (1..state_chunk).find(|pages| (pages * page_size).is_multiple_of(state_chunk)).unwrap_or(state_chunk);
        let mut places = [self.pages.find(keys), keys.len()].map(|place| place / unit * unit).to_vec();
        // The request starts after these pages, so a state before that is never computed.
        places.retain(|place| *place > usable);
        places.dedup();
        places
    }

    /// Whether a running request is prefilling the start of this one, as with samples of the same
    /// prompt: waiting for these pages is cheaper than filling others with the same contents.
    fn is_being_read(&self, next: &Waiting) -> bool {
        // Keys are chained: who fills the last of these pages fills those before it as well.
        let page = self.pages.find(next.keys.all()) + WORTH_WAITING.div_ceil(self.backend.capacity().page_size) - 1;
        let key = next.keys.all().get(page);
        key.is_some_and(|key| self.running.iter().any(|running| running.will_fill(page, key)))
    }

    /// Collects the oldest work in flight.
    fn collect(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        match self.in_flight.pop_front() {
            Some(InFlight::Round(round)) => self.collect_round(round, events),
            Some(InFlight::Prefill(prefill)) => self.collect_prefill(prefill, events),
            None => Ok(()),
        }
    }

    /// Collects events, and releases the resources of finished requests.
    fn sweep(&mut self, events: &mut dyn FnMut(Event)) {
        let mut at = 0;
        while let Some(running) = self.running.get_mut(at) {
            for event in running.take_events() {
                if let Event::Finished { completion, .. } = &event {
                    self.statistics.finished(&completion.finish_reason);
                }
                events(event);
            }
            if !running.is_done() {
                at += 1;
                continue;
            }
            // In order, since `make_room` takes the last one to be the youngest.
            let mut done = self.running.remove(at);
            self.end_texts(&done);
            self.release(&mut done);
        }
    }

    /// Releases the slot and pages of a request.
    fn release(&mut self, running: &mut ScheduledRequest) {
        // Before the slot is closed, which forgets the number. Rows that the draft has not
        // processed cannot be reused by others.
        let unread = running.slot().map_or(0, |slot| self.backend.pending_draft_tokens(slot));
        if let Some(place) = running.leave_place(self.options.reuse, unread) {
            self.backend.close(place.slot);
            self.slots.push(place.slot);
            self.pages.close(place.pages, place.keys.all());
        }
    }
}

/// The reason why a request has no token at a position.
fn no_token(backend: &dyn Backend, running: &ScheduledRequest, position: usize) -> FinishReason {
    let grammar = running.slot().and_then(|slot| backend.grammar_failure(slot));
    grammar.map_or(FinishReason::NotFinite(position), FinishReason::Grammar)
}
