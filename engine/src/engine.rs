//! The public engine: a scheduler over a backend, with tokenizer and chat template.

mod states;
pub mod timing;

use std::{ops::ControlFlow, path::Path, time::Duration};

use schemas::tree::TreeShape;

use crate::{
    backend::{Capacity, DeviceInfo, Exchange, GpuState},
    checkpoint::{Folder, GenerationConfig},
    error::EngineError,
    identity::Identity,
    load::{Loaded, hashes, load},
    options::{EngineOptions, ShapePolicy},
    replay::{self, Acceptance, KeepStates, Keeping, ReplayProgress, ReplayText},
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
    scheduler: Scheduler,
    text: Option<Text>,
    generation: GenerationConfig,
}

impl Engine {
    /// Loads the models and takes the memory that the options ask for.
    ///
    /// # Errors
    /// When files are missing or malformed, target and draft do not fit, or memory does not suffice.
    pub fn load(options: EngineOptions) -> Result<Self, EngineError> {
        Self::load_watched(options, &mut |_, _| {})
    }

    /// Like [`load`](Self::load), but reports the progress of graph capture as `captured(done, total)`. On
    /// a GPU's first start each of them is searched for its fastest kernels.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_watched(
        mut options: EngineOptions,
        captured: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, EngineError> {
        let loaded = load(&options)?;
        let Loaded { mut backend, identity, context_length, text, generation, end_tokens } = loaded;
        options.context_length = Some(context_length);
        let shapes: Vec<TreeShape> = options.policy.shapes().collect();
        backend.prepare(&shapes, &options.graph_sizes(), captured)?;
        Ok(Self {
            identity,
            scheduler: Scheduler::new(
                backend,
                ModelEnds { end_tokens, text: text.clone() },
                options.policy.clone(),
                scheduler_options(&options),
            ),
            options,
            text,
            generation,
        })
    }

    /// Checks a request and puts it in the queue.
    ///
    /// # Errors
    /// When it can never run: an empty prompt, tokens outside the vocabulary, a prompt longer than the context.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        self.scheduler.submit(request)
    }

    /// Ends a request; its [`Event::Finished`] comes with the next step. Unknown numbers are ignored.
    pub fn cancel(&mut self, request: RequestId) {
        self.scheduler.cancel(request);
    }

    /// Admits what fits, takes prompts in, and runs one round for the running batch.
    ///
    /// # Errors
    /// When the target's logits for a request are not finite, which has then ended, or the device fails; then the engine is not
    /// usable afterwards.
    pub fn step(&mut self) -> Result<Vec<Event>, EngineError> {
        let events = self.step_each()?;
        let broken = events.iter().find_map(|event| match event {
            Event::Finished { completion, .. } => match completion.finish_reason {
                FinishReason::NotFinite(position) => Some(position),
                _ => None,
            },
            Event::Tokens { .. } => None,
        });
        broken.map_or(Ok(events), |position| Err(EngineError::NotFinite { position }))
    }

    /// The same for requests that have nothing to do with each other: one for which the target's logits are not finite ends
    /// alone, by [`FinishReason::NotFinite`].
    ///
    /// # Errors
    /// When the device fails; the engine is not usable afterwards.
    pub fn step_each(&mut self) -> Result<Vec<Event>, EngineError> {
        self.scheduler.step()
    }

    /// Whether nothing is queued or running.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Runs requests to their end and returns their completions in the given order.
    ///
    /// # Errors
    /// As [`submit`](Self::submit) and [`step`](Self::step). All requests are checked before the first one runs.
    pub fn run(&mut self, requests: Vec<Request>) -> Result<Vec<Completion>, EngineError> {
        let mut ids = Vec::new();
        for request in requests {
            match self.submit(request) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    ids.into_iter().for_each(|id| self.cancel(id));
                    self.step()?;
                    return Err(error);
                }
            }
        }
        let mut completions: Vec<Option<Completion>> = vec![None; ids.len()];
        while !self.is_idle() {
            for event in self.step()? {
                if let Event::Finished { request, completion } = event
                    && let Some(at) = ids.iter().position(|id| *id == request)
                {
                    completions[at] = Some(*completion);
                }
            }
        }
        Ok(completions.into_iter().flatten().collect())
    }

    /// Changes which tree runs at which batch, without reloading weights. Only while idle.
    ///
    /// # Errors
    /// When a shape cannot run, or needs a draft that is not loaded.
    pub fn set_policy(&mut self, policy: ShapePolicy) -> Result<(), EngineError> {
        self.set_policy_watched(policy, &mut |_, _| {})
    }

    /// Like the above; `captured` reports graphs as in [`load_watched`](Self::load_watched).
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

    /// Lets a GPU's thread of a model that several share end as if it had crashed: what follows then is an error, and what is
    /// tested.
    pub fn kill_rank(&mut self, rank: usize) {
        self.scheduler.kill_rank(rank);
    }

    /// The same engine with the draft of another folder, which describes the same kind of draft with other weights: a
    /// checkpoint of a training run, for example. Only while idle. A backend that cannot exchange weights loads both models
    /// again.
    ///
    /// # Errors
    /// When a request is running, the draft does not fit, or loading fails; the engine is unusable then.
    pub fn with_draft(mut self, folder: &Path) -> Result<Self, EngineError> {
        let options = EngineOptions { draft_model_path: Some(folder.to_owned()), ..self.options.clone() };
        self.scheduler.expect_idle("the draft can be exchanged")?;
        if !self.scheduler.exchange(&options, Exchange::Draft, true)? {
            drop(self);
            return Self::load(options);
        }
        self.identity.draft = Some(Folder::open(folder)?.hash()?);
        self.options = options;
        Ok(self)
    }

    /// Makes acceptance up from now on, to time rounds: this many tokens per round on average. `None` for what the target
    /// says. Only while idle.
    ///
    /// # Errors
    /// When a request runs.
    pub fn simulate_accept_length(&mut self, length: Option<f32>) -> Result<(), EngineError> {
        self.scheduler.simulate_accept_length(length)?;
        self.options.simulate_accept_length = length;
        Ok(())
    }

    /// What trees of these shapes accept along texts, without running them: for each text, in the given order, one
    /// [`Acceptance`] a shape, as a run of that text with that shape would have counted it. Shapes need not be prepared.
    /// Only while idle; the prefix cache is cleared. `progress` receives the progress and may cancel it:
    /// then there is no result.
    ///
    /// # Errors
    /// When a request runs, a text cannot have been produced here, a shape is none, a draft is missing, or memory for a
    /// text is; and when the device fails.
    pub fn replay(
        &mut self,
        texts: &[ReplayText],
        shapes: &[TreeShape],
        progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Vec<Acceptance>>>, EngineError> {
        replay::run(self.scheduler.lend()?, texts, shapes, None, progress)
    }

    /// As [`replay`](Self::replay), and keeps the target's states of the texts in a file. Where that is there already,
    /// of these texts, this target, device and settings, and a draft that sees the same of it, the draft runs alone. A
    /// file that cannot be used or written costs only what it would have spared.
    ///
    /// # Errors
    /// As [`replay`](Self::replay), and when the file could be opened and then no longer be read.
    pub fn replay_keeping(
        &mut self,
        texts: &[ReplayText],
        shapes: &[TreeShape],
        keep: KeepStates<'_>,
        progress: &mut dyn FnMut(ReplayProgress) -> ControlFlow<()>,
    ) -> Result<Option<Vec<Vec<Acceptance>>>, EngineError> {
        let keeping = Keeping { keep, identity: &self.identity, options: &self.options };
        replay::run(self.scheduler.lend()?, texts, shapes, Some(keeping), progress)
    }

    /// Takes the weights of other folders, of models of the same descriptions: those of both models, or of the draft alone.
    /// Tokenizer, chat template and end tokens stay. Requests that run continue with what the KV cache holds of them, which the
    /// old weights have computed; [`retract`](Self::retract) lets them read all of it again. `flush` forgets what the cache
    /// holds of requests that have ended.
    ///
    /// # Errors
    /// When the weights do not fit, or with `flush` a request runs: nothing has changed then. When the device fails, the
    /// engine is not usable afterwards.
    pub fn update_weights(&mut self, folders: &WeightFolders, flush: bool) -> Result<(), EngineError> {
        let (options, which) = folders.resolve(&self.options)?;
        if !self.scheduler.exchange(&options, which, flush)? {
            return Err(EngineError::Configuration(format!(
                "{} cannot replace weights while it serves: restart it with the new ones",
                self.device().device
            )));
        }
        (self.identity.target, self.identity.draft) = hashes(&options)?;
        self.options = options;
        Ok(())
    }

    /// Puts requests that run back into the queue. They keep what they have produced, and read prompt and output again when
    /// they go on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn retract(&mut self) -> Result<Vec<Event>, EngineError> {
        self.scheduler.retract()
    }

    /// Takes the memory of the KV cache now, where the system has only promised it: a process that runs for long then has
    /// from the start what it will need, and grows no more. Only while idle.
    ///
    /// # Errors
    /// When a request runs.
    pub fn commit_memory(&mut self) -> Result<(), EngineError> {
        self.scheduler.commit_memory()
    }

    /// Ends what is cancelled, collects what was launched, and begins nothing.
    ///
    /// # Errors
    /// When the device fails.
    pub fn settle(&mut self) -> Result<Vec<Event>, EngineError> {
        self.scheduler.settle()
    }

    /// Lets no request leave the queue from now on, or lets them again.
    pub fn hold_queue(&mut self, hold: bool) {
        self.scheduler.hold_queue(hold);
    }

    /// Whether no request runs; some may wait.
    pub fn nothing_runs(&self) -> bool {
        self.scheduler.nothing_runs()
    }

    /// Forgets what the KV cache holds of requests that have ended. Only while idle.
    ///
    /// # Errors
    /// When a request runs.
    pub fn flush_cache(&mut self) -> Result<(), EngineError> {
        self.scheduler.flush_cache()
    }

    /// What passes read of memory and multiply.
    pub fn cost(&self) -> ModelCost {
        self.scheduler.backend().cost()
    }

    /// Bytes a second that the device reads of its memory, measured now.
    ///
    /// # Errors
    /// When the device fails.
    pub fn measure_bandwidth(&self) -> Result<f64, EngineError> {
        self.scheduler.backend().measure_bandwidth()
    }

    /// How long graphs have taken to capture so far; `None` on a device without them.
    pub fn capture_time(&self) -> Option<Duration> {
        self.scheduler.backend().capture_time()
    }

    /// The state that the GPU's driver reports now; `None` on a CPU, or if the driver reports none.
    pub fn gpu_state(&self) -> Option<GpuState> {
        self.scheduler.backend().gpu_state()
    }

    /// Tokens that end an output unless a request ignores them.
    pub fn end_tokens(&self) -> &[u32] {
        self.scheduler.end_tokens()
    }

    /// What it runs on.
    pub fn device(&self) -> DeviceInfo {
        self.scheduler.backend().device()
    }

    /// What it has room for.
    pub fn capacity(&self) -> Capacity {
        self.scheduler.backend().capacity()
    }

    /// Maximum number of running requests.
    pub fn max_running_requests(&self) -> usize {
        self.scheduler.largest_batch()
    }

    /// The options, with what was left open filled in.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// What identifies the models.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Tokenizer and chat template, where the target has a tokenizer.
    pub fn text(&self) -> Option<&Text> {
        self.text.as_ref()
    }

    /// The sampling parameters that the model recommends.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.generation
    }

    /// What has happened so far, and what runs now.
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
            false => Reuse::All.under_simulation(options.simulate_accept_length.is_some()),
        },
    }
}
