//! The client interface to a server, independent of the engine.

mod prometheus;
mod sglang;
mod vllm;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    ServerError,
    advice::explained,
    http::{Address, ApiKey, check_authorities},
};

pub use self::prometheus::Metrics;

/// The API of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiKind {
    /// SGLang's, which `spectune serve` also implements.
    Sglang,
    /// vLLM's.
    Vllm,
}

/// A client of a server.
#[derive(Clone, Debug)]
pub struct Api {
    kind: ApiKind,
    /// For requests that generate text.
    address: Address,
    /// For requests that an idle server answers at once.
    short: Address,
    base: String,
    served_name: Option<String>,
}

/// A server's description of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerInfo {
    /// The engine's version, if the server reports it.
    pub version: Option<String>,
    /// Names of the models that it serves.
    pub models: Vec<String>,
    /// Who owns these models, as far as it is told: vLLM and SGLang give their own names.
    pub owners: Vec<String>,
    /// The folder or id of the first model, if the server reports it.
    pub root: Option<String>,
    /// Maximum number of tokens of a sequence, if the list of models reports it.
    pub context_length: Option<u64>,
    /// The configuration in effect, after the engine's defaults and rewrites; `None` if the server
    /// does not report it.
    pub resolved: Option<Value>,
}

impl ServerInfo {
    /// Whether it is spectune's own server, which takes SGLang's flags.
    pub fn is_spectune(&self) -> bool {
        self.resolved.as_ref().is_some_and(|answer| answer["engine"] == "spectune")
    }
}

/// Counters and gauges of a server at one moment; `None` for a figure that it does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Number of running requests.
    pub running: Option<f64>,
    /// Number of waiting requests.
    pub waiting: Option<f64>,
    /// Tokens generated since the start.
    pub generated_tokens: Option<f64>,
    /// Verify passes since the start, counted per request.
    pub rounds: Option<f64>,
    /// Drafts accepted since the start.
    pub accepted_drafts: Option<f64>,
    /// Requests retracted since the start because the KV cache was full.
    pub retracted: Option<f64>,
    /// Prompt tokens found in the prefix cache since the start.
    pub cached_tokens: Option<f64>,
    /// Positions of drafts for which acceptance is counted: the number of drafted tokens.
    pub draft_positions: Option<usize>,
}

/// Maximum time to wait for a response that needs no work of the model.
const LONGEST_SHORT: Duration = Duration::from_secs(30);

/// A request to generate text.
#[derive(Clone, Debug, PartialEq)]
pub struct Generate<'a> {
    /// The prompt's tokens.
    pub input_ids: &'a [u32],
    /// Maximum number of tokens to generate.
    pub max_new_tokens: usize,
    /// Whether generation continues after an end-of-text token.
    pub ignore_eos: bool,
    /// 0 for greedy.
    pub temperature: f32,
    /// Share of the distribution to sample from, largest probabilities first.
    pub top_p: f32,
    /// Maximum number of tokens to sample from; 0 for all.
    pub top_k: u32,
    /// Smallest probability to sample from, relative to the largest.
    pub min_p: f32,
    /// Seed of the random numbers; `None` to let the server choose.
    pub seed: Option<u64>,
}

/// The result of a request. Times count from when it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Number of generated tokens.
    pub output_tokens: usize,
    /// The tokens, if the server reports them.
    pub output_ids: Vec<u32>,
    /// Time until the first token arrived.
    pub first_token: Duration,
    /// Time until the last token arrived.
    pub last_token: Duration,
    /// How many tokens had arrived by when, ascending; one entry for each event that brought some.
    pub arrivals: Vec<(Duration, usize)>,
    /// Number of rounds of this request, if the server reports it.
    pub rounds: Option<u64>,
    /// Number of accepted drafts, if the server reports it.
    pub accepted_drafts: Option<u64>,
    /// Number of proposed drafts, if the server reports it.
    pub proposed_drafts: Option<u64>,
    /// Entry j counts the rounds that accepted j drafts; empty if the server does not report it.
    pub accept_histogram: Vec<u64>,
    /// Tokens of the prompt that were in the prefix cache, if the server reports it.
    pub cached_tokens: Option<u64>,
}

impl Api {
    /// A server at a URL. `served_name` is the model name that identifies a server started by us.
    /// Generating requests wait for `timeout` at most for the next bytes, others for at most half a
    /// minute.
    pub fn new(kind: ApiKind, base: &str, served_name: Option<String>, timeout: Duration) -> Self {
        let (address, short) = (Address::new(base, timeout), Address::new(base, timeout.min(LONGEST_SHORT)));
        Self { kind, address, short, base: base.to_owned(), served_name }
    }

    /// The same, with an API key in every request.
    pub fn with_key(self, key: Option<ApiKey>) -> Self {
        Self { address: self.address.with_key(key.clone()), short: self.short.with_key(key), ..self }
    }

    /// The same, waiting for at most this time for the next bytes.
    pub fn waiting(&self, timeout: Duration) -> Self {
        let (address, short) = (self.address.waiting(timeout), self.short.waiting(timeout.min(LONGEST_SHORT)));
        Self { address, short, ..self.clone() }
    }

    /// The same, asking for this model by its name.
    pub fn with_model(self, name: String) -> Self {
        Self { served_name: Some(name), ..self }
    }

    /// A running server at a URL, whose API is recognised by its answers, and its description of
    /// itself.
    ///
    /// # Errors
    /// When nothing answers there, or neither SGLang's nor vLLM's endpoints do, with what to do
    /// about it; when the file of certificate authorities cannot be used.
    pub fn recognise(base: &str, key: Option<ApiKey>, timeout: Duration) -> Result<(Self, ServerInfo), ServerError> {
        check_authorities(base)?;
        Self::recognised(base, key, timeout).map_err(|error| explained(error, base))
    }

    fn recognised(base: &str, key: Option<ApiKey>, timeout: Duration) -> Result<(Self, ServerInfo), ServerError> {
        let sglang = Self::new(ApiKind::Sglang, base, None, timeout).with_key(key);
        let info = sglang.info()?;
        // vLLM has an endpoint of the same name in development mode, with other content.
        if info.resolved.as_ref().is_some_and(|answer| answer.get("model_path").is_some()) {
            return Ok((sglang, info));
        }
        let vllm = Self { kind: ApiKind::Vllm, ..sglang };
        let info = vllm.info()?;
        if info.models.is_empty() {
            return Err(ServerError::Request {
                url: base.to_owned(),
                reason: "it answers neither as SGLang nor as vLLM: /v1/models lists no model".into(),
            });
        }
        // A proxy may forward the OpenAI API alone, which is all that vLLM needs to be measured.
        if info.version.is_none() && !info.owners.iter().any(|owner| owner == "vllm") {
            return Err(ServerError::Request {
                url: base.to_owned(),
                reason: format!(
                    "it lists the model {}, but answers neither at /server_info, as SGLang and spectune do, nor at /version, \
                     as vLLM does: if a proxy in front of it forwards only some paths, give the server's own address",
                    info.models[0]
                ),
            });
        }
        Ok((vllm, info))
    }

    /// Its URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Its API.
    pub fn kind(&self) -> ApiKind {
        self.kind
    }

    /// Whether it serves requests.
    ///
    /// # Errors
    /// When there is no response.
    pub fn is_ready(&self) -> Result<bool, ServerError> {
        match self.kind {
            ApiKind::Sglang => sglang::is_ready(&self.short),
            // vLLM opens the port only once the engine is up.
            ApiKind::Vllm => match self.short.get("/health")?.status {
                status if is_hidden(status) => Ok(self.short.get("/v1/models")?.status == 200),
                status => Ok(status == 200),
            },
        }
    }

    /// Whether it serves the given model name; true if none was given.
    ///
    /// # Errors
    /// When it does not respond.
    pub fn is_own(&self) -> Result<bool, ServerError> {
        let models = self.models()?;
        Ok(self.served_name.as_ref().is_none_or(|name| models.contains(name)))
    }

    /// Its description of itself.
    ///
    /// # Errors
    /// When it does not respond.
    pub fn info(&self) -> Result<ServerInfo, ServerError> {
        let cards = self.cards()?;
        let first = cards.first();
        let listed = ServerInfo {
            models: names(&cards),
            owners: cards.iter().filter_map(|card| card["owned_by"].as_str().map(str::to_owned)).collect(),
            root: first.and_then(|card| card["root"].as_str().map(str::to_owned)),
            context_length: first.and_then(|card| whole(&card["max_model_len"])),
            ..ServerInfo::default()
        };
        match self.kind {
            ApiKind::Sglang => sglang::info(&self.short, listed),
            ApiKind::Vllm => vllm::info(&self.short, listed),
        }
    }

    /// Its metrics; `None` if it has no such page.
    ///
    /// # Errors
    /// When it does not respond.
    pub fn metrics(&self) -> Result<Option<Metrics>, ServerError> {
        let answer = self.short.get("/metrics")?;
        Ok((answer.status == 200).then(|| Metrics::parse(&answer.body)))
    }

    /// Its current counters.
    ///
    /// # Errors
    /// When it does not respond; a server without metrics reports no figures.
    pub fn counters(&self) -> Result<Counters, ServerError> {
        let Some(metrics) = self.metrics()? else { return Ok(Counters::default()) };
        Ok(match self.kind {
            ApiKind::Sglang => sglang::counters(&metrics),
            ApiKind::Vllm => vllm::counters(&metrics),
        })
    }

    /// Flushes its prefix cache, so that a repeat of a workload does not find its own prompts.
    /// Works only while no request runs. Returns whether it was flushed: some servers refuse, or
    /// have no endpoint for it.
    ///
    /// # Errors
    /// When it does not respond.
    pub fn flush_cache(&self) -> Result<bool, ServerError> {
        match self.kind {
            ApiKind::Sglang => Ok(self.short.post("/flush_cache", &json!({}))?.status == 200),
            ApiKind::Vllm => vllm::reset_prefix_cache(&self.short),
        }
    }

    /// Generates text, and measures when its tokens arrive.
    ///
    /// # Errors
    /// When the server refuses it, the stream ends early, or `interrupted` is set.
    pub fn generate(&self, request: &Generate<'_>, interrupted: &AtomicBool) -> Result<Generated, ServerError> {
        let sent = Instant::now();
        let mut times = TokenTimes::new(sent, interrupted);
        let (path, mut generated) = match self.kind {
            ApiKind::Sglang => sglang::generate(&self.address, request, &mut times)?,
            ApiKind::Vllm => {
                // vLLM requires a model name; its first served model is used if none was given.
                let name = match &self.served_name {
                    Some(name) => name.clone(),
                    None => self.models()?.into_iter().next().unwrap_or_default(),
                };
                vllm::generate(&self.address, request, &name, &mut times)?
            }
        };
        if times.is_interrupted() {
            return Err(ServerError::Interrupted);
        }
        let (Some((first, _)), Some((last, _))) = (times.arrivals.first(), times.arrivals.last()) else {
            return Err(self.address.failed(path, "the stream ended without a token".into()));
        };
        if times.is_uncounted {
            let reason =
                "the stream has a text, and no usage that counts its tokens: does a proxy drop `stream_options`?";
            return Err(self.address.failed(path, reason.into()));
        }
        (generated.first_token, generated.last_token) = (*first, *last);
        (generated.output_tokens, generated.arrivals) = (times.tokens, times.arrivals);
        Ok(generated)
    }

    fn models(&self) -> Result<Vec<String>, ServerError> {
        Ok(names(&self.cards()?))
    }

    /// The descriptions of its models.
    fn cards(&self) -> Result<Vec<Value>, ServerError> {
        let path = "/v1/models";
        let mut answer = self.short.json(path, &self.short.get(path)?)?;
        match answer["data"].take() {
            Value::Array(cards) => Ok(cards),
            _ => Ok(Vec::new()),
        }
    }
}

/// Whether a status is that of a path that a server does not have, or that a proxy in front of it
/// does not forward.
fn is_hidden(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 405)
}

fn names(cards: &[Value]) -> Vec<String> {
    cards.iter().filter_map(|card| card["id"].as_str().map(str::to_owned)).collect()
}

impl Generated {
    /// The state before any token.
    fn empty() -> Self {
        Self {
            output_tokens: 0,
            output_ids: Vec::new(),
            first_token: Duration::ZERO,
            last_token: Duration::ZERO,
            arrivals: Vec::new(),
            rounds: None,
            accepted_drafts: None,
            proposed_drafts: None,
            accept_histogram: Vec::new(),
            cached_tokens: None,
        }
    }
}

/// Arrival times of tokens.
struct TokenTimes<'a> {
    sent: Instant,
    /// As [`Generated::arrivals`].
    arrivals: Vec<(Duration, usize)>,
    tokens: usize,
    /// Whether the entries of `arrivals` are pieces of text, of which it is not known how many
    /// tokens they have.
    is_uncounted: bool,
    /// Set by another thread to stop reading.
    interrupted: &'a AtomicBool,
}

impl<'a> TokenTimes<'a> {
    fn new(sent: Instant, interrupted: &'a AtomicBool) -> Self {
        Self { sent, arrivals: Vec::new(), tokens: 0, is_uncounted: false, interrupted }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Records an event after which this many tokens have been generated in total.
    fn seen(&mut self, tokens: usize) {
        if self.is_uncounted && tokens > 0 {
            self.share_out(tokens);
        } else if tokens > self.tokens {
            self.arrivals.push((self.sent.elapsed(), tokens));
            self.tokens = tokens;
        }
    }

    /// Records an event that brings this many further tokens, or a piece of text whose tokens are
    /// not counted.
    fn brought(&mut self, tokens: Option<usize>) {
        self.is_uncounted |= tokens.is_none();
        self.tokens += tokens.unwrap_or(1);
        self.arrivals.push((self.sent.elapsed(), self.tokens));
    }

    /// Gives all pieces their share of this many tokens, which the server counts at the end alone.
    fn share_out(&mut self, tokens: usize) {
        let pieces = self.tokens.max(1);
        for (_, until) in &mut self.arrivals {
            *until = (*until * tokens).div_ceil(pieces);
        }
        self.arrivals.dedup_by_key(|(_, until)| *until);
        (self.tokens, self.is_uncounted) = (tokens, false);
    }
}

/// Refuses an answer that ended because the server gave it up.
///
/// # Errors
/// With the server's reason.
fn check_end(kind: Option<&str>, message: Option<&str>) -> Result<(), String> {
    match kind {
        Some(kind @ ("abort" | "error")) => {
            let message = message.filter(|message| !message.is_empty()).map(|message| format!(": {message}"));
            Err(format!("the server ended the answer early (finish reason {kind}){}", message.unwrap_or_default()))
        }
        _ => Ok(()),
    }
}

/// A non-negative integer of a response.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|value| *value >= 0.0).map(|value| value as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_counted_at_the_end_alone_arrive_with_their_text() {
        let running = AtomicBool::new(false);
        let mut times = TokenTimes::new(Instant::now(), &running);
        for _ in 0..4 {
            times.brought(None);
        }
        assert!(times.is_uncounted, "four pieces of unknown length");
        times.seen(10);
        let counts: Vec<usize> = times.arrivals.iter().map(|(_, tokens)| *tokens).collect();
        assert_eq!((counts.as_slice(), times.tokens, times.is_uncounted), (&[3, 5, 8, 10][..], 10, false));
        // More pieces than tokens: a proxy may divide texts.
        let mut times = TokenTimes::new(Instant::now(), &running);
        (0..4).for_each(|_| times.brought(None));
        times.seen(2);
        let counts: Vec<usize> = times.arrivals.iter().map(|(_, tokens)| *tokens).collect();
        assert_eq!((counts.as_slice(), times.tokens), (&[1, 2][..], 2));
        // Ids are counted, with or without a usage at the end.
        let mut times = TokenTimes::new(Instant::now(), &running);
        times.brought(Some(1));
        times.brought(Some(3));
        assert_eq!((times.tokens, times.is_uncounted, times.arrivals.len()), (4, false, 2));
        times.seen(4);
        assert_eq!(times.arrivals.len(), 2, "the usage at the end is no token");
    }
}
