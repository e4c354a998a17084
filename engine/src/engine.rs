//! The public engine: a scheduler over a backend, with tokenizer and chat template.

mod states;
#[cfg(test)]
mod tests;
pub mod timing;

use std::{ops::ControlFlow, path::Path, time::Duration};

use schemas::tree::TreeShape;

use crate::{
    backend::{Capacity, DeviceInfo, Exchange, ExpertReads, GpuState},
    checkpoint::{Folder, GenerationConfig},
    error::EngineError,
    identity::Identity,
    load::{Loaded, hashes, load},
    options::{EngineOptions, ShapePolicy},
    played::Simulated,
    replay::{self, KeepStates, Keeping, PositionTrace, ReplayProgress, ReplayText, ShapeAcceptance},
    request::{Completion, Event, FinishReason, Request, RequestId},
    scheduler::{ModelEnds, Reuse, Scheduler, SchedulerOptions, Statistics},
    spec::ModelCost,
    text::Text,
    weights::WeightFolders,
};

pub use self::states::TextStates;

/// A loaded target with its draft, ready for requests. Owned by one thread.
pub struct Engine {
    options: EngineOptions,
    identity: Identity,
    draft_algorithm: Option<&'static str>,
    scheduler: Scheduler,
    text: Option<Text>,
    generation: GenerationConfig,
}

impl Engine {
    /// Loads the models and allocates the memory that the options specify.
    ///
    /// # Errors
    /// When files are missing or malformed, target and draft do not fit together, or memory is
    /// insufficient.
    pub fn load(options: EngineOptions) -> Result<Self, EngineError> {
        Self::load_watched(options, &mut |_, _| {})
    }

    /// Like [`load`](Self::load), but reports the progress of graph capture as
    /// `captured(done, total)`. On the first start on a GPU, autotuning also chooses the fastest
    /// kernels for each graph.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_watched(
        mut options: EngineOptions,
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, EngineError> {
        let loaded = load(&options)?;
        let Loaded { mut backend, identity, draft_algorithm, context_length, text, generation, end_tokens } = loaded;
        // Resolved now: weights that replace these later must not change it.
        options.context_length = Some(context_length);
        // Weights that replace these are multiplied as these are.
        options.fp8_compute = identity.fp8_compute.or(options.fp8_compute);
        let shapes: Vec<TreeShape> = options.policy.shapes().collect();
        backend.simulate_acceptance(options.simulated.clone())?;
        backend.prepare(&shapes, &options.graph_sizes(), captured)?;
        Ok(Self {
            identity,
            draft_algorithm,
            scheduler: Scheduler::new(
                backend,
                ModelEnds { end_tokens, text: text.clone() },
                options.policy.clone(),
                scheduler_options(&options),
            )
            .with_texts(options.text_draft())
            .with_second_source(options.second_source),
            options,
            text,
            generation,
        })
    }

    /// Checks a request and queues it.
    ///
    /// # Errors
    /// When the request can never run: its prompt is empty or longer than the context, or tokens
    /// are outside the vocabulary.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        self.scheduler.submit(request)
    }

    /// Cancels a request; the next step emits its [`Event::Finished`]. Unknown ids are ignored.
    pub fn cancel(&mut self, request: RequestId) {
        self.scheduler.cancel(request);
    }

    /// Admits the requests that fit, prefills prompts, and runs one round for the running batch.
    /// `events` receives each event as soon as it is known, those of a request in order: the first
    /// token before the round's tokens are waited for. It must return quickly, since the device may
    /// be idle meanwhile.
    ///
    /// # Errors
    /// When the target's logits for a request are not finite (that request has then ended), or when
    /// the device fails (the engine is then unusable).
    pub fn step(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        let mut broken = None;
        self.step_each(&mut |event| {
            if let Event::Finished { completion, .. } = &event
                && let FinishReason::NotFinite(position) = completion.finish_reason
            {
                // Reported after the step, so that the events of other requests are not lost.
                broken.get_or_insert(position);
            }
            events(event);
        })?;
        broken.map_or(Ok(()), |position| Err(EngineError::NotFinite { position }))
    }

    /// Like [`step`](Self::step), for independent requests: a request for which the target's logits
    /// are not finite ends alone, with [`FinishReason::NotFinite`].
    ///
    /// # Errors
    /// When the device fails; the engine is then unusable.
    pub fn step_each(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        self.scheduler.step(events)
    }

    /// Whether no request is queued or running.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Runs requests to completion and returns their completions in the given order.
    ///
    /// # Errors
    /// As [`submit`](Self::submit) and [`step`](Self::step). All requests are checked before the
    /// first one runs.
    pub fn run(&mut self, requests: Vec<Request>) -> Result<Vec<Completion>, EngineError> {
        Ok(self.run_while(requests, &mut || true)?.into_iter().flatten().collect())
    }

    /// As [`run`](Self::run), while a condition holds, which is checked before every round.
    /// Requests that have not finished then are cancelled; `None` is in their place.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_while(
        &mut self,
        requests: Vec<Request>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Option<Completion>>, EngineError> {
        let mut ids = Vec::new();
        for request in requests {
            match self.submit(request) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    ids.into_iter().for_each(|id| self.cancel(id));
                    self.step(&mut |_| {})?;
                    return Err(error);
                }
            }
        }
        let mut completions: Vec<Option<Completion>> = vec![None; ids.len()];
        let mut stops = false;
        while !self.is_idle() {
            if !stops && !goes_on() {
                stops = true;
                ids.iter().zip(&completions).filter(|(_, one)| one.is_none()).for_each(|(id, _)| self.cancel(*id));
            }
            self.step(&mut |event| {
                if let Event::Finished { request, completion } = event
                    && !stops
                    && let Some(at) = ids.iter().position(|id| *id == request)
                {
                    completions[at] = Some(*completion);
                }
            })?;
        }
        Ok(completions)
    }

    /// Changes which tree shape runs at which batch size, without reloading weights. Only while
    /// idle.
    ///
    /// # Errors
    /// When a shape cannot run, or needs a draft that is not loaded.
    pub fn set_policy(&mut self, policy: ShapePolicy) -> Result<(), EngineError> {
        self.set_policy_watched(policy, &mut |_, _| {})
    }

    /// Like [`set_policy`](Self::set_policy), with graph capture reported as in
    /// [`load_watched`](Self::load_watched).
    ///
    /// # Errors
    /// As [`set_policy`](Self::set_policy).
    pub fn set_policy_watched(
        &mut self,
        policy: ShapePolicy,
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<(), EngineError> {
        self.scheduler.set_policy(policy.clone(), &self.options.graph_sizes(), captured)?;
        self.options.policy = policy;
        Ok(())
    }

    /// Ends the thread of one rank of a tensor-parallel group as if it had crashed, to test that
    /// errors follow.
    pub fn kill_rank(&mut self, rank: usize) {
        self.scheduler.kill_rank(rank);
    }

    /// The same engine with the draft of another folder: the same kind of draft with other weights,
    /// such as a checkpoint of a training run. Only while idle. A backend that cannot replace
    /// weights in place loads both models again.
    ///
    /// # Errors
    /// When a request is running, the draft does not fit, or loading fails; the engine is then
    /// unusable.
    pub fn with_draft(mut self, folder: &Path) -> Result<Self, EngineError> {
        let options = EngineOptions { draft_model_path: Some(folder.to_owned()), ..self.options.clone() };
        self.scheduler.expect_idle("the draft can be replaced")?;
        if !self.scheduler.exchange(&options, Exchange::Draft, true)? {
            // Its memory is needed for the new engine.
            drop(self);
            return Self::load(options);
        }
        self.identity.draft = Some(Folder::open(folder)?.hash()?);
        self.options = options;
        Ok(self)
    }

    /// Simulates acceptance from now on, for timing rounds. `None` restores the target's decisions.
    /// Only while idle. If texts are played, their shapes are the only ones that can run, besides
    /// no speculation.
    ///
    /// # Errors
    /// When a request is running, or memory for what is played is missing.
    pub fn simulate_acceptance(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.scheduler.simulate_acceptance(simulated.clone())?;
        self.options.simulated = simulated;
        Ok(())
    }

    /// Does work whose rounds count the experts that they read. Rounds take longer meanwhile. Only
    /// while idle.
    ///
    /// # Errors
    /// When a request is running before or after the work, or the work fails.
    pub fn counting_experts<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, EngineError>,
    ) -> Result<(R, ExpertReads), EngineError> {
        self.scheduler.count_experts(true)?;
        let done = work(self)?;
        Ok((done, self.scheduler.count_experts(false)?.unwrap_or_default()))
    }

    /// Replay: what trees of these shapes would accept along texts, without running rounds.
    /// Returns, for each text in the given order, one [`ShapeAcceptance`] per shape, as a run of
    /// that text with that shape would have counted it. For drafts that are looked up in texts,
    /// that is a run of all texts one after the other
    /// ([`TextHistory::Cold`](crate::TextHistory::Cold)). Shapes need not be prepared. Only while
    /// idle; the prefix cache is cleared. `progress` receives the progress and may cancel the
    /// replay, which then returns `None`.
    ///
    /// # Errors
    /// When a request is running, a text cannot have been produced by this engine, a shape is
    /// invalid, the draft is missing, the memory for a text is missing, or the device fails.
    pub fn replay(
        &mut self,
        texts: &[ReplayText],
        shapes: &[TreeShape],
        progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Vec<ShapeAcceptance>>>, EngineError> {
        if let Some(rule) = self.options.text_draft() {
            self.scheduler.expect_idle("texts can be replayed")?;
            return replay::texts::run(rule, texts, shapes, progress);
        }
        let second_source = self.options.second_source;
        replay::run(self.scheduler.lend()?, texts, shapes, replay::Extras { second_source, keeping: None }, progress)
    }

    /// Like [`replay`](Self::replay), but keeps the target's states of the texts in a file. If the
    /// file already exists, for these texts, this target, device and settings, and a draft that
    /// reads the same features, only the draft runs. A file that cannot be used or written only
    /// loses this saving.
    ///
    /// # Errors
    /// As [`replay`](Self::replay), and when the file could be opened but reading it fails later.
    pub fn replay_keeping(
        &mut self,
        texts: &[ReplayText],
        shapes: &[TreeShape],
        keep: KeepStates<'_>,
        progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Vec<ShapeAcceptance>>>, EngineError> {
        if self.options.text_draft().is_some() {
            return self.replay(texts, shapes, progress);
        }
        let keeping = Some(Keeping { keep, identity: &self.identity, options: &self.options });
        let second_source = self.options.second_source;
        replay::run(self.scheduler.lend()?, texts, shapes, replay::Extras { second_source, keeping }, progress)
    }

    /// What the draft would propose at every position of texts: one [`PositionTrace`] for each
    /// limit, from which the acceptance of every shape within it follows, wherever rounds start.
    /// Only while idle; the prefix cache is cleared. `progress` may cancel it; the result then has
    /// the texts that are finished, which are the first ones.
    ///
    /// # Errors
    /// As [`replay`](Self::replay), and for drafts that are looked up in texts: what they find
    /// depends on the requests before, so they are replayed in order.
    pub fn trace_positions(
        &mut self,
        texts: &[ReplayText],
        limits: &[TreeShape],
        progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    ) -> Result<Vec<PositionTrace>, EngineError> {
        let source = self.traced_draft(limits)?;
        replay::positions::run(self.scheduler.lend()?, source, texts, limits, progress)
    }

    /// The algorithm of the draft, if [`trace_positions`](Self::trace_positions) can trace it up to
    /// these limits.
    ///
    /// # Errors
    /// Without a draft, for one that is looked up in texts, beside a second source, or when it
    /// cannot fill a tree of the limits.
    pub fn traced_draft(&self, limits: &[TreeShape]) -> Result<&'static str, EngineError> {
        if let Some(rule) = self.options.text_draft() {
            return Err(EngineError::Configuration(format!(
                "{} has no trace by position: what it looks up depends on the requests before; its texts are replayed \
                 in order instead",
                rule.algorithm()
            )));
        }
        if self.options.second_source.is_some() {
            return Err(EngineError::Configuration(
                "a trace by position has the proposals of the head alone: remove --speculative-second-source".into(),
            ));
        }
        let Some(algorithm) = self.draft_algorithm else {
            return Err(EngineError::Configuration(
                "a trace by position needs a draft: give --speculative-algorithm and --speculative-draft-model-path"
                    .into(),
            ));
        };
        replay::positions::check_limits(limits, self.cost().nodes)?;
        Ok(algorithm)
    }

    /// The algorithm of the draft, judging by its tensors, or the rule for texts; `None` without a
    /// draft.
    pub fn draft_algorithm(&self) -> Option<&'static str> {
        self.draft_algorithm
    }

    /// Replaces the weights, of both models or of the draft alone, with those of other folders,
    /// whose models must have the same description. Tokenizer, chat template and end tokens stay.
    /// Running requests continue with their KV cache as the old weights computed it;
    /// [`retract`](Self::retract) makes them recompute it. `flush` clears the prefix cache.
    ///
    /// # Errors
    /// When the weights do not fit, or with `flush` a request is running: nothing has changed then.
    /// When the device fails, the engine is unusable afterwards.
    pub fn update_weights(&mut self, folders: &WeightFolders, flush: bool) -> Result<(), EngineError> {
        let (options, which) = folders.resolve(&self.options)?;
        if !self.scheduler.exchange(&options, which, flush)? {
            return Err(EngineError::Configuration(format!(
                "{} cannot replace weights while it serves: restart it with the new ones",
                self.device().device
            )));
        }
        // Only after the exchange: a refused one must leave the identity as it is.
        (self.identity.target, self.identity.draft) = hashes(&options)?;
        self.options = options;
        Ok(())
    }

    /// Puts running requests back into the queue. They keep their output, and prefill prompt and
    /// output again when they continue.
    ///
    /// # Errors
    /// When the device fails.
    pub fn retract(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        self.scheduler.retract(events)
    }

    /// Commits the memory of the KV cache now if the system has only reserved it, so that the
    /// memory of a long-running process does not grow later. Only while idle.
    ///
    /// # Errors
    /// When a request is running.
    pub fn commit_memory(&mut self) -> Result<(), EngineError> {
        self.scheduler.commit_memory()
    }

    /// Ends cancelled requests and collects launched rounds, without starting new work.
    ///
    /// # Errors
    /// When the device fails.
    pub fn settle(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        self.scheduler.settle(events)
    }

    /// Keeps all requests in the queue from now on, or admits them again.
    pub fn hold_queue(&mut self, hold: bool) {
        self.scheduler.hold_queue(hold);
    }

    /// Whether no request is running; some may be queued.
    pub fn nothing_runs(&self) -> bool {
        self.scheduler.nothing_runs()
    }

    /// Clears the prefix cache. Only while idle.
    ///
    /// # Errors
    /// When a request is running.
    pub fn flush_cache(&mut self) -> Result<(), EngineError> {
        self.scheduler.flush_cache()
    }

    /// Forgets the texts of earlier requests in which drafts are looked up, so that what follows is
    /// drafted as after a start.
    pub fn forget_texts(&mut self) {
        self.scheduler.forget_texts();
    }

    /// The memory traffic and multiplications of passes.
    pub fn cost(&self) -> ModelCost {
        self.scheduler.backend().cost()
    }

    /// Memory bandwidth of the device in bytes per second, measured now.
    ///
    /// # Errors
    /// When the device fails.
    pub fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        self.scheduler.backend().measure_bandwidth()
    }

    /// Floating-point operations per second that products with weights can sustain on the device,
    /// as far as that is known.
    pub fn product_rate(&self) -> Option<f64> {
        self.scheduler.backend().product_rate()
    }

    /// Total time of graph capture so far; `None` on a device without graphs.
    pub fn capture_time(&self) -> Option<Duration> {
        self.scheduler.backend().capture_time()
    }

    /// The state that the GPU's driver reports now; `None` on a CPU, or if the driver reports none.
    pub fn gpu_state(&self) -> Option<GpuState> {
        self.scheduler.backend().gpu_state()
    }

    /// Tokens that end an output, except for requests that ignore them.
    pub fn end_tokens(&self) -> &[u32] {
        self.scheduler.end_tokens()
    }

    /// The device that it runs on.
    pub fn device(&self) -> DeviceInfo {
        self.scheduler.backend().device()
    }

    /// Its capacity in slots, pages and tokens.
    pub fn capacity(&self) -> Capacity {
        self.scheduler.backend().capacity()
    }

    /// Maximum number of running requests.
    pub fn max_running_requests(&self) -> usize {
        self.scheduler.largest_batch()
    }

    /// The options, with defaults resolved.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Name and hashes of the models.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Tokenizer and chat template, if the target has a tokenizer.
    pub fn text(&self) -> Option<&Text> {
        self.text.as_ref()
    }

    /// The sampling parameters that the model recommends.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.generation
    }

    /// Counters since the start, and what is running now.
    pub fn statistics(&self) -> &Statistics {
        self.scheduler.statistics()
    }
}

fn scheduler_options(options: &EngineOptions) -> SchedulerOptions {
    SchedulerOptions {
        largest_batch: options.max_running_requests,
        prefill_budget: options.chunked_prefill_size,
        reuse: match options.disable_radix_cache {
            true => Reuse::Off,
            false => Reuse::All.under_simulation(options.simulated.is_some()),
        },
    }
}
