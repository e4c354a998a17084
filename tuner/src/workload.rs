//! The workload of a trial: prompts from files or traces, or random ones, and their arrival times.

pub(crate) mod arrivals;
pub(crate) mod context;
mod entry;
mod file;
mod formats;
mod model_text;
pub(crate) mod prompt_pool;
mod prompts;
mod random;
#[cfg(test)]
mod tests;
mod trace;

use std::{borrow::Cow, path::Path, time::Duration};

use engine::{Request, SamplingParams, StopConditions};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::sweep::{self, SweepFile};

pub use self::{
    formats::refusal,
    model_text::ModelText,
    trace::{arrivals as recorded_arrivals, output_lengths as recorded_lengths},
};
use self::{prompts::PromptList, random::share, trace::TracedRequest};
use crate::{TunerError, error::tidy, trials::configuration::TrialLoad};

/// Requests of a trial for each that runs together. With fewer, the whole batch runs for little of
/// a trial, and the prompts that are prefilled weigh more in it than under a lasting load.
pub const LEAST_WAVES: usize = 2;

/// Maximum number of prompt tokens of a trial, over all requests: one GiB of them.
const MOST_TOKENS: usize = 1 << 28;

/// The requests of a trial. They are the same in every trial, so that shapes are compared on the
/// same texts.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedWorkload {
    /// In the order in which they are sent.
    pub requests: Vec<Request>,
    /// Arrival times of a trace's requests, relative to the first one; empty without a trace.
    pub recorded: Vec<Duration>,
    /// Seed of sampling, random prompts and lengths, and arrival times.
    pub seed: u64,
    /// New tokens of each warm-up request; 0 for no warm-up.
    pub warm_up_tokens: usize,
    /// Hash of tokens, lengths, recorded times and sampling.
    pub hash: String,
    /// Number of skipped prompts of the file: too long, or conversations without a user message.
    pub left_out: usize,
    /// Number of distinct prompts; if there are fewer than requests, they are repeated.
    pub prompts: usize,
}

/// Limits for prompts.
#[derive(Debug)]
struct Room {
    /// Number of prompts that are needed; no more are read.
    requests: usize,
    /// Maximum prompt length; longer prompts are skipped.
    max_prompt_tokens: Option<usize>,
    /// New tokens of a request that does not specify them.
    output_length: usize,
    context_length: usize,
    vocab_size: usize,
}

impl LoadedWorkload {
    /// Reads the prompts of a sweep. Relative paths refer to `folder`.
    ///
    /// # Errors
    /// When a file cannot be read or is malformed, or a prompt does not fit the model's context.
    /// This is checked before any trial runs, since it would fail every one of them.
    pub fn load(workload: &sweep::Workload, folder: &Path, model: &ModelText) -> Result<Self, TunerError> {
        let room = Room::from_workload(workload, model);
        let mut numbers = StdRng::seed_from_u64(workload.seed);
        let mut recorded = Vec::new();
        let (requests, left_out, prompts): (Vec<Request>, usize, usize) = if let Some(path) = &workload.trace {
            let trace = trace::read(&folder.join(path), workload, &mut numbers, model, &room)?;
            recorded = trace.requests.iter().map(|request| request.arrival).collect();
            let traced = trace.requests.into_iter().zip(workload.seed..);
            let requested = traced.map(|(TracedRequest { tokens, output_length, .. }, seed)| {
                request(workload, tokens, output_length, seed)
            });
            let requests: Vec<Request> = requested.collect();
            let prompts = requests.len();
            (requests, trace.left_out, prompts)
        } else {
            let prompts = prompts(workload, folder, model, &room, &mut numbers)?;
            (untimed(workload, &prompts, &mut numbers)?, prompts.left_out, prompts.tokens.len())
        };
        if requests.is_empty() {
            let left_out = match left_out {
                0 => String::new(),
                count => format!(" ({count} were skipped: longer than max_prompt_tokens, or without a user message)"),
            };
            return Err(TunerError::Configuration(format!("{} contains no prompt{left_out}", name(workload, folder))));
        }
        let hash = hash(workload, &requests, &recorded);
        let (seed, warm_up_tokens) = (workload.seed, workload.warm_up_tokens);
        Ok(Self { requests, recorded, seed, warm_up_tokens, hash, left_out, prompts })
    }

    /// The places of the requests of a load: those of its context bucket, or all.
    pub fn places_of(&self, load: TrialLoad) -> Vec<usize> {
        let is_in = |at: &usize| {
            let halfway = || context::requested_halfway(&self.requests[*at]);
            load.contexts().is_none_or(|contexts| contexts.contains(halfway()))
        };
        (0..self.requests.len()).filter(is_in).collect()
    }

    /// The places of the requests that a trial under a load sends, repeated if there are fewer than
    /// run together.
    pub fn sent_under(&self, load: TrialLoad) -> Vec<usize> {
        let places = self.places_of(load);
        let count = places.len().max(load.batch_size().unwrap_or_default());
        places.iter().copied().cycle().take(count).collect()
    }

    /// Number of requests that a trial under a load sends.
    pub fn requests_under(&self, load: TrialLoad) -> usize {
        self.sent_under(load).len()
    }

    /// Maximum number of tokens that such a trial generates.
    pub fn tokens_under(&self, load: TrialLoad) -> u64 {
        let tokens = |at: usize| self.requests[at].stop.max_new_tokens.unwrap_or_default() as u64;
        self.sent_under(load).into_iter().map(tokens).sum()
    }

    /// The workload of a load: itself, or only the requests of the load's context bucket.
    pub fn for_load(&self, load: TrialLoad) -> Cow<'_, Self> {
        if load.contexts().is_none() {
            return Cow::Borrowed(self);
        }
        let requests = self.places_of(load).into_iter().map(|at| self.requests[at].clone()).collect();
        Cow::Owned(Self { requests, ..self.clone() })
    }

    /// Checks that each context bucket has a request. `whose` names the workload.
    ///
    /// # Errors
    /// When one has none, with the contexts that there are.
    pub fn check_buckets(&self, loads: &[TrialLoad], whose: &str) -> Result<(), TunerError> {
        let Some(contexts) =
            loads.iter().filter(|load| self.places_of(**load).is_empty()).find_map(|load| load.contexts())
        else {
            return Ok(());
        };
        let all = || self.requests.iter().map(context::requested_halfway);
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        Err(TunerError::Configuration(format!(
            "batch.contexts: no request of {whose} has {contexts}; halfway through their outputs they have contexts of \
             {least:.0} to {most:.0} tokens"
        )))
    }

    /// Over which time recorded requests arrive, and at which rate, in words; `None` without a
    /// trace. A trace whose times were read in another unit shows here.
    pub fn recorded_span(&self) -> Option<String> {
        Some(span(self.recorded.len(), self.recorded.last()?.as_secs_f64()))
    }

    /// Arrival times of the requests, relative to the first one: the same for every configuration,
    /// but different in every repeat, so that no single draw decides; recorded times are always the
    /// same. `None` for a closed loop, and for recorded times if the workload has none.
    pub fn arrivals(&self, load: TrialLoad, repeat: usize) -> Option<Vec<Duration>> {
        match load {
            TrialLoad::BatchSize(_) | TrialLoad::BatchInContexts(..) => None,
            TrialLoad::RequestRate(rate) => Some(arrivals::poisson(self.seed, repeat, rate.0, self.requests.len())),
            TrialLoad::Recorded => (self.recorded.len() == self.requests.len()).then(|| self.recorded.clone()),
        }
    }
}

/// A number with three digits that count, or all of those before the point.
fn significant(number: f64) -> String {
    let before_point = if number > 0.0 { number.log10().floor() as i32 } else { 0 };
    let digits = usize::try_from(2 - before_point).unwrap_or_default().min(9);
    format!("{number:.digits$}")
}

/// Over which time this many requests arrive, and at which rate, in words; `last` is the last
/// arrival, in seconds after the first one.
pub fn span(requests: usize, last: f64) -> String {
    if last == 0.0 {
        return format!("all {requests} recorded requests arrive at once");
    }
    // From the first to the last one, as the rates of an open loop.
    let rate = significant((requests - 1) as f64 / last);
    format!("{requests} recorded requests arrive within {} s, {rate} per second", significant(last))
}

/// The file that a workload is read from, or what it is, for messages.
pub fn name(workload: &sweep::Workload, folder: &Path) -> String {
    let file = [&workload.prompts, &workload.input_ids, &workload.trace].into_iter().flatten().next();
    file.map_or_else(|| "the workload".into(), |file| tidy(&folder.join(file)).display().to_string())
}

/// The prompts of a file as tokens, at most as many as the workload has requests, and the number of
/// skipped ones.
///
/// # Errors
/// When the file cannot be read or is malformed, or a prompt does not fit the model's context.
pub fn read_prompts(
    path: &Path,
    workload: &sweep::Workload,
    model: &ModelText,
) -> Result<(Vec<Vec<u32>>, usize), TunerError> {
    let prompts = prompts::texts(path, workload, model, &Room::from_workload(workload, model))?;
    check_total(prompts.tokens.iter().fold(0, |sum, tokens| sum.saturating_add(tokens.len())))?;
    Ok((prompts.tokens, prompts.left_out))
}

/// A warning if the prompts of a sweep, or some of them, are random tokens whose acceptance was
/// measured. A trace that is not on this machine has none.
pub fn warning(file: &SweepFile, folder: &Path) -> Option<String> {
    // Imported acceptance does not depend on the prompts.
    if file.models.acceptance.is_some() {
        return None;
    }
    let workload = &file.workload;
    let of_trace = || trace::has_random_prompts(&folder.join(workload.trace.as_ref()?)).then_some(());
    let random = workload.random.as_ref().map(|_| ()).or_else(of_trace);
    random.map(|()| {
        "the prompts are random tokens: accept lengths on them, and so the speed-ups and the choice, say nothing about \
         text; sweep with prompts of the real workload before using it"
            .into()
    })
}

impl Room {
    fn from_workload(workload: &sweep::Workload, model: &ModelText) -> Self {
        Self {
            requests: workload.requests,
            max_prompt_tokens: workload.max_prompt_tokens,
            output_length: workload.output_length,
            context_length: model.context_length,
            vocab_size: model.vocab_size,
        }
    }

    /// Whether a prompt of this many tokens is skipped.
    fn leaves_out(&self, prompt_tokens: usize) -> bool {
        self.max_prompt_tokens.is_some_and(|most| prompt_tokens > most)
    }

    fn check(&self, tokens: &[u32], output_length: usize) -> Result<(), String> {
        if tokens.is_empty() {
            return Err("the prompt is empty".into());
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.vocab_size) {
            return Err(format!("token {token} is outside the vocabulary of {}", self.vocab_size));
        }
        self.check_length(tokens.len(), output_length)
    }

    fn check_length(&self, prompt_tokens: usize, output_length: usize) -> Result<(), String> {
        if prompt_tokens.saturating_add(output_length) <= self.context_length {
            return Ok(());
        }
        Err(format!(
            "the prompt has {prompt_tokens} tokens; with {output_length} new ones it does not fit the context of {}: \
             lower output_length, or skip long prompts with workload.max_prompt_tokens",
            self.context_length
        ))
    }
}

/// The prompts of a workload without arrival times.
fn prompts(
    workload: &sweep::Workload,
    folder: &Path,
    model: &ModelText,
    room: &Room,
    numbers: &mut StdRng,
) -> Result<PromptList, TunerError> {
    if let Some(path) = &workload.input_ids {
        prompts::token_ids(&folder.join(path), room)
    } else if let Some(path) = &workload.prompts {
        prompts::texts(&folder.join(path), workload, model, room)
    } else if let Some(random) = &workload.random {
        random::prompts(random, numbers, room, model)
    } else {
        Ok(PromptList::default())
    }
}

/// The requested number of requests; prompts are repeated if there are fewer.
fn untimed(workload: &sweep::Workload, prompts: &PromptList, numbers: &mut StdRng) -> Result<Vec<Request>, TunerError> {
    let fewest =
        workload.random.as_ref().map_or(workload.output_length, |random| share(workload.output_length, random.ratio));
    let tokens = || prompts.tokens.iter().cycle().take(workload.requests);
    check_total(tokens().fold(0, |sum, tokens| sum.saturating_add(tokens.len())))?;
    let requests = tokens().zip(workload.seed..).map(|(input_ids, seed)| {
        let length = numbers.random_range(fewest..=workload.output_length);
        request(workload, input_ids.clone(), length, seed)
    });
    Ok(requests.collect())
}

fn request(workload: &sweep::Workload, input_ids: Vec<u32>, output_length: usize, seed: u64) -> Request {
    let sweep::Workload { temperature, top_p, top_k, ignore_eos, .. } = *workload;
    Request {
        input_ids,
        sampling: SamplingParams { temperature, top_p, top_k, seed, ..SamplingParams::default() },
        stop: StopConditions { max_new_tokens: Some(output_length), ignore_eos, ..StopConditions::default() },
    }
}

fn check_total(prompt_tokens: usize) -> Result<(), TunerError> {
    if prompt_tokens <= MOST_TOKENS {
        return Ok(());
    }
    let reason =
        format!("the prompts of a trial have more than {MOST_TOKENS} tokens in total: lower workload.requests");
    Err(TunerError::Configuration(reason))
}

fn hash(workload: &sweep::Workload, requests: &[Request], recorded: &[Duration]) -> String {
    let mut hasher = blake3::Hasher::new();
    for request in requests {
        hasher.update(&(request.input_ids.len() as u64).to_le_bytes());
        hasher.update(&(request.stop.max_new_tokens.unwrap_or_default() as u64).to_le_bytes());
        request.input_ids.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
    }
    recorded.iter().for_each(|arrival| {
        hasher.update(&arrival.as_nanos().to_le_bytes());
    });
    // Identifies what a trial measures: changed when the method changes, so that trials of both
    // kinds are not ranked together.
    hasher.update(b"arrivals at the very rate, figures without stalls, full closed loops");
    let sweep::Workload { ignore_eos, temperature, top_p, top_k, seed, warm_up_tokens, .. } = workload;
    hasher.update(format!("{ignore_eos} {temperature} {top_p} {top_k} {seed} {warm_up_tokens}").as_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}
