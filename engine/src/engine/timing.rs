//! Times rounds, as data for fitting a model of the round time.
//!
//! The time of a round depends on its shape, its batch and its context, not on the text. So
//! acceptance is simulated (one token per round, so that the context stays the same), and prompts
//! are random. Requests do not share pages: the device's cache would serve all of them from one
//! copy, and rounds would look faster than they are. The prompts of a batch are prefilled once and
//! then stay in the prefix cache for all shapes that are timed on them. Other prompts of the same
//! lengths are prefilled first, so that one-time work for a new size (loading kernels, planning by
//! the library) does not count as prefill time.

mod settled;
#[cfg(test)]
mod tests;

use std::time::Duration;

use schemas::tree::TreeShape;

use super::{Engine, scheduler_options};
use crate::{
    backend::RoundTiming,
    error::EngineError,
    options::ShapePolicy,
    played::Simulated,
    random::uniform,
    request::{Request, SamplingParams, StopConditions},
    scheduler::{Reuse, Statistics},
};

/// Rounds before the first one that counts, in addition to those in flight: the first round
/// captures its graph and has cold caches.
const WARM_UP: usize = 3;

/// Prompts of a batch, of equal length and with different tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prompts {
    /// Prefilled first, so that prefilling the others is timed warm.
    WarmUp,
    /// The prompts of the timed rounds.
    Timed,
}

/// A configuration of rounds to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimingPoint {
    /// Approximate tokens per request in the middle of the timed rounds; a prompt has at least one
    /// token.
    pub context: usize,
    /// Number of requests.
    pub batch: usize,
    /// The tree shape.
    pub shape: TreeShape,
    /// Places without a request. Whole rounds on a GPU run in a graph of exactly `batch + empty`
    /// places, as if that were a capture size; without graphs, in parts and on a CPU there are no
    /// such places.
    pub empty: usize,
}

impl TimingPoint {
    /// A batch in a graph of its own size.
    pub fn full(shape: TreeShape, batch: usize, context: usize) -> Self {
        Self { context, batch, shape, empty: 0 }
    }
}

/// The times of a point's rounds: at least half of the requested number. Both lists are about the
/// same rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTimes {
    /// The point that was timed.
    pub point: TimingPoint,
    /// Tokens of a request in the cache, averaged over the timed rounds and the requests.
    pub context: f64,
    /// Times measured on the device.
    pub device: Vec<RoundTiming>,
    /// Time from one collected round to the next, as a user sees it: includes the host's work.
    pub wall: Vec<Duration>,
    /// Time of prefilling the prompts of the batch, warm. Set for the first point of each batch and
    /// context that speculates, and for the first that does not (whole rounds only); the other
    /// points find the prompts in the cache.
    pub prefill: Option<PrefillTime>,
}

/// Time and size of a prefill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillTime {
    /// Number of prefilled tokens.
    pub tokens: usize,
    /// Number of their prompts, which have equal lengths.
    pub prompts: usize,
    /// Sum over the tokens of the number of tokens that each attends to, itself included.
    pub pairs: u64,
    /// Whether the draft processed them too, as in an engine that may speculate.
    pub draft: bool,
    /// Number of scheduler steps with prefill; each prefills at most `--chunked-prefill-size`
    /// tokens.
    pub steps: usize,
    /// Their total time.
    pub elapsed: Duration,
}

/// Prompts that are prefilled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefillPoint {
    /// Tokens of each prompt.
    pub length: usize,
    /// Number of prompts.
    pub prompts: usize,
    /// The tree of the engine: the draft processes prompts too if it speculates.
    pub shape: TreeShape,
}

/// How timed rounds are launched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoundLaunch {
    Whole,
    InParts,
}

impl Engine {
    /// Times `rounds` rounds of each point; results are in the order of the points. Rounds that run
    /// before the device has settled are excluded; if these are more than half, further rounds are
    /// timed. Afterwards shapes and acceptance are as before, and the prefix cache works as before
    /// but is empty. The [`statistics`](Self::statistics) include these rounds.
    ///
    /// Points of one batch and context cost two prefills of their prompts, in whatever order they
    /// are given, and a third if only some of them speculate.
    ///
    /// # Errors
    /// When requests are running, a point does not fit the engine, or the device fails.
    pub fn time_rounds(&mut self, points: &[TimingPoint], rounds: usize) -> Result<Vec<RoundTimes>, EngineError> {
        self.time_runs(points, rounds, RoundLaunch::Whole)
    }

    /// The same with the parts of each round, for devices that do not measure them in normal
    /// operation: rounds run part by part, so their total is slightly longer than with
    /// [`time_rounds`](Self::time_rounds). Graphs are those of the engine's capture sizes, as in
    /// normal operation.
    ///
    /// # Errors
    /// As [`time_rounds`](Self::time_rounds).
    pub fn time_parts(&mut self, points: &[TimingPoint], rounds: usize) -> Result<Vec<RoundTimes>, EngineError> {
        self.time_runs(points, rounds, RoundLaunch::InParts)
    }

    /// Prefills the prompts of each point `repeats` times, after one time that does not count;
    /// results are in the order of the points. Afterwards shapes, acceptance and prefix cache are
    /// as after [`time_rounds`](Self::time_rounds).
    ///
    /// # Errors
    /// When requests are running, a prompt does not fit the engine, or the device fails.
    pub fn time_prefills(&mut self, points: &[PrefillPoint], repeats: usize) -> Result<Vec<PrefillTime>, EngineError> {
        self.scheduler.expect_idle("prefills can be timed")?;
        let simulated = self.options.simulated.clone();
        let times = self.time_prompts(points, repeats);
        let restored = self.restore(simulated);
        let times = times?;
        restored.map(|()| times)
    }

    fn time_prompts(&mut self, points: &[PrefillPoint], repeats: usize) -> Result<Vec<PrefillTime>, EngineError> {
        self.scheduler.set_reuse(Reuse::Off)?;
        let vocabulary = self.capacity().vocab_size;
        let mut times = Vec::with_capacity(points.len() * repeats);
        for PrefillPoint { length, prompts, shape } in points {
            // Prompts of one token need no round, so no graph.
            self.scheduler.set_policy(ShapePolicy::fixed(*shape), &[], &mut |_, _| {})?;
            for repeat in 0..=repeats {
                let token = |number: usize, position: usize| {
                    let seed = ((*length as u64) << 32) + ((repeat as u64) << 16) + number as u64;
                    (uniform(seed, position) * vocabulary as f64) as u32
                };
                let prompt = |number: usize| (0..*length).map(|position| token(number, position)).collect();
                let prompts: Vec<Vec<u32>> = (0..*prompts).map(prompt).collect();
                let time = self.read(&prompts, !shape.is_off())?;
                times.extend((repeat > 0).then_some(time));
            }
        }
        Ok(times)
    }

    fn time_runs(
        &mut self,
        points: &[TimingPoint],
        rounds: usize,
        run: RoundLaunch,
    ) -> Result<Vec<RoundTimes>, EngineError> {
        self.scheduler.expect_idle("rounds can be timed")?;
        points.iter().try_for_each(|point| self.check_point(*point, rounds))?;
        let simulated = self.options.simulated.clone();
        let times = self.time_prepared(points, rounds, run);
        let restored = self.restore(simulated);
        // Report the first error, not one that cleaning up causes.
        let times = times?;
        restored.map(|()| times)
    }

    fn time_prepared(
        &mut self,
        points: &[TimingPoint],
        rounds: usize,
        run: RoundLaunch,
    ) -> Result<Vec<RoundTimes>, EngineError> {
        self.scheduler.time_parts(run == RoundLaunch::InParts)?;
        self.scheduler.set_reuse(Reuse::Prompts)?;
        self.scheduler.simulate_acceptance(Some(Simulated::Length(1.0)))?;
        let mut order: Vec<usize> = (0..points.len()).collect();
        // The largest trees first, so that buffers grow once. No speculation last: a change to
        // speculation clears the prefix cache, since rounds without speculation leave no rows in
        // the draft's cache.
        order.sort_by_key(|at| {
            let TimingPoint { context, batch, shape, empty } = points[*at];
            (context, batch, std::cmp::Reverse((!shape.is_off(), shape.num_draft_tokens)), shape, empty)
        });
        let mut times = Vec::with_capacity(points.len());
        let mut before = None;
        for at in order {
            let point = points[at];
            self.scheduler.set_policy(
                ShapePolicy::fixed(point.shape),
                &self.timed_graphs(point.batch + point.empty, run),
                &mut |_, _| {},
            )?;
            let prompts = self.prompts(Prompts::Timed, point, rounds);
            let batch = (point.context, point.batch);
            let speculates = !point.shape.is_off();
            let there = before.is_some_and(|(read, _)| read == batch);
            let prefill = match run {
                RoundLaunch::InParts if there => None,
                RoundLaunch::InParts => Some(self.read(&prompts, speculates)?),
                RoundLaunch::Whole if before == Some((batch, speculates)) => None,
                RoundLaunch::Whole => {
                    if there {
                        // Prompts of the same sizes were prefilled without the draft, so kernels
                        // are warm: prefill in full again.
                        self.scheduler.set_reuse(Reuse::Prompts)?;
                    } else {
                        self.read(&self.prompts(Prompts::WarmUp, point, rounds), speculates)?;
                    }
                    Some(self.read(&prompts, speculates)?)
                }
            };
            before = Some((batch, speculates));
            times.push((at, RoundTimes { prefill, ..self.time(point, &prompts, rounds)? }));
        }
        times.sort_by_key(|(at, _)| *at);
        Ok(times.into_iter().map(|(_, times)| times).collect())
    }

    fn restore(&mut self, simulated: Option<Simulated>) -> Result<(), EngineError> {
        self.end_all()?;
        self.scheduler.time_parts(false)?;
        self.scheduler.simulate_acceptance(simulated)?;
        self.scheduler.set_reuse(scheduler_options(&self.options).reuse)?;
        self.scheduler.set_policy(self.options.policy.clone(), &self.options.graph_sizes(), &mut |_, _| {})
    }

    fn end_all(&mut self) -> Result<(), EngineError> {
        self.scheduler.cancel_all();
        while !self.is_idle() {
            self.step(&mut |_| {})?;
        }
        Ok(())
    }

    fn timed_graphs(&self, places: usize, run: RoundLaunch) -> Vec<usize> {
        match run {
            RoundLaunch::InParts => self.options.graph_sizes(),
            RoundLaunch::Whole if self.options.disable_cuda_graph => Vec::new(),
            RoundLaunch::Whole => vec![places],
        }
    }

    /// Prefills prompts and ends them; `draft` is whether the draft processes them too.
    fn read(&mut self, prompts: &[Vec<u32>], draft: bool) -> Result<PrefillTime, EngineError> {
        let before = self.statistics().clone();
        let mut steps = 0;
        for prompt in prompts {
            self.submit(request(prompt, 1))?;
        }
        while !self.is_idle() {
            let spent = self.statistics().prefill_time;
            self.step(&mut |_| {})?;
            steps += usize::from(self.statistics().prefill_time > spent);
        }
        let after = self.statistics();
        let read = |counted: &Statistics| counted.prompt_tokens - counted.cached_tokens;
        Ok(PrefillTime {
            tokens: (read(after) - read(&before)) as usize,
            prompts: prompts.len(),
            pairs: prompts.iter().map(|prompt| (prompt.len() * (prompt.len() + 1) / 2) as u64).sum(),
            draft,
            steps,
            elapsed: after.prefill_time - before.prefill_time,
        })
    }

    /// Random prompts of the length that puts the context in the middle of the timed rounds.
    fn prompts(&self, which: Prompts, point: TimingPoint, rounds: usize) -> Vec<Vec<u32>> {
        let vocabulary = self.capacity().vocab_size;
        let length = self.prompt_length(point.context, rounds);
        let prompt = |number: usize| {
            // Prompts of another context have other tokens, so that their prefill is timed in full.
            let half = match which {
                Prompts::WarmUp => 1 << 31,
                Prompts::Timed => 0,
            };
            let seed = ((point.context as u64) << 32) + half + number as u64;
            let token = |position| (uniform(seed, position) * vocabulary as f64) as u32;
            (0..length).map(token).collect()
        };
        (0..point.batch).map(prompt).collect()
    }

    fn prompt_length(&self, context: usize, rounds: usize) -> usize {
        let before = 1 + WARM_UP + self.capacity().rounds_in_flight + rounds / 2;
        context.saturating_sub(before).max(1)
    }

    /// Enough tokens that no request ends while rounds are timed. The first requests already run
    /// while the others prefill the ends of their prompts, which fill no page.
    fn new_tokens(&self, batch: usize, rounds: usize) -> usize {
        let capacity = self.capacity();
        let chunk = self.options.chunked_prefill_size.min(capacity.prefill_chunk).max(1);
        let reading = (batch * capacity.page_size).div_ceil(chunk) + 1;
        1 + reading + WARM_UP + 2 * capacity.rounds_in_flight + rounds
    }

    fn check_point(&self, point: TimingPoint, rounds: usize) -> Result<(), EngineError> {
        let TimingPoint { context, batch, shape, empty } = point;
        let wrong =
            |reason: String| Err(EngineError::Configuration(format!("timing ({shape}) at batch {batch}: {reason}")));
        let largest = self.max_running_requests();
        if rounds == 0 || batch == 0 {
            return wrong("at least one request and one round are needed".into());
        }
        if batch.saturating_add(empty) > largest {
            return wrong(format!("larger than --max-running-requests {largest}: raise it"));
        }
        let needed = self.prompt_length(context, rounds) + self.new_tokens(batch, rounds);
        let context_length = self.capacity().context_length;
        if needed > context_length {
            return wrong(format!(
                "{rounds} rounds around {context} tokens need a context length of {needed}, and it is \
                 {context_length}: time fewer rounds or a shorter context, or raise --context-length"
            ));
        }
        Ok(())
    }

    fn no_room(&self, point: TimingPoint) -> EngineError {
        let TimingPoint { context, batch, shape, .. } = point;
        EngineError::Configuration(format!(
            "timing ({shape}): {batch} requests of {context} tokens together do not fit the KV cache ({} pages of {} \
             tokens): raise --mem-fraction-static, or time a smaller batch or context",
            self.capacity().pages,
            self.capacity().page_size
        ))
    }
}

fn request(prompt: &[u32], new: usize) -> Request {
    Request {
        input_ids: prompt.to_vec(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_new_tokens: Some(new), ignore_eos: true, ..StopConditions::default() },
    }
}
