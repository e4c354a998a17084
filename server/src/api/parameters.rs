//! The parameters common to chat, completions and SGLang's API.

use engine::{Adjustments, OutputText, Request, SamplingParams, StopConditions, checkpoint::GenerationConfig};
use serde_json::Value;

use crate::{
    http::{error::ApiError, fields::Fields},
    output::grammar::GrammarForm,
    state::State,
    worker::{Named, WorkerFacts},
};

/// Maximum number of stop strings and stop tokens of a request.
const MOST_STOPS: usize = 16;
/// Longest stop string in bytes.
const LONGEST_STOP: usize = 1024;
/// Maximum number of choices of a request.
const MOST_CHOICES: i64 = 128;
/// Maximum number of alternatives for a token.
pub const MOST_LOGPROBS: i64 = 20;

/// Maximum number of tokens with a bias.
const MOST_BIASES: usize = 4096;

/// Sampling and stop conditions of a request, and its number of choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Sampling parameters without the seed.
    pub sampling: SamplingParams,
    /// When the output ends.
    pub stop: StopConditions,
    /// Number of choices per prompt.
    pub choices: usize,
    /// The seed of the first choice; if absent, each choice gets a random one.
    pub seed: Option<u64>,
    /// The required form of the output, and the parameter that specifies it.
    pub form: Option<(&'static str, GrammarForm)>,
}

/// How an API specifies the number of tokens to generate: the first of these names that is present
/// counts.
#[derive(Clone, Copy, Debug)]
pub struct LengthParameter {
    /// The names.
    pub names: &'static [&'static str],
    /// The minimum number of tokens: 0 if a response may consist of the prompt's log-probabilities
    /// only.
    pub least: i64,
}

impl Parameters {
    /// Reads the parameters. Absent ones are taken from `defaults`, else they are neutral:
    /// temperature and top_p are 1.
    ///
    /// # Errors
    /// When one has the wrong type or is out of range.
    pub fn read(
        fields: &mut Fields,
        facts: &WorkerFacts,
        defaults: &GenerationConfig,
        lengths: LengthParameter,
    ) -> Result<Self, ApiError> {
        let mut number = |name: &str, most: f64, default: Option<f32>, neutral: f32| {
            let given = fields.number(name, 0.0..=most)?.map(|number| number as f32);
            Ok::<f32, ApiError>(given.or(default).unwrap_or(neutral))
        };
        let temperature = number("temperature", 100.0, defaults.temperature, 1.0)?;
        let top_p = number("top_p", 1.0, defaults.top_p, 1.0)?;
        let min_p = number("min_p", 1.0, defaults.min_p, 0.0)?;
        // SGLang and vLLM write -1 for no limit.
        let top_k = fields.integer("top_k", -1..=i64::MAX)?.map(|top_k| usize::try_from(top_k).unwrap_or_default());
        let choices = fields.integer("n", 1..=MOST_CHOICES)?.unwrap_or(1);
        // Only `best_of` equal to n is supported, which is the same as n.
        if fields.integer("best_of", 1..=MOST_CHOICES)?.is_some_and(|best_of| best_of != choices) {
            return Err(fields.complain("best_of", "best_of is not supported by this server unless it equals n"));
        }
        let least = least_tokens(fields)?;
        Ok(Self {
            sampling: SamplingParams {
                temperature,
                top_p,
                top_k: top_k.or(defaults.top_k).unwrap_or_default(),
                min_p,
                seed: 0,
                logprobs: None,
                adjustments: adjustments(fields, facts, defaults, least.before_ends)?,
                prompt_logprobs: None,
                most_drafts: most_drafts(fields)?,
                played: None,
            },
            stop: StopConditions { unsearched_tokens: least.before_stop_strings, ..stop_conditions(fields, lengths)? },
            choices: choices as usize,
            seed: seed(fields)?,
            form: GrammarForm::read(fields)?,
        })
    }

    /// Compiles the required form of the output, if any.
    ///
    /// # Errors
    /// When it is not a valid grammar, or allows no output.
    pub async fn compile(&mut self, state: &State) -> Result<(), ApiError> {
        if let Some((parameter, form)) = self.form.take() {
            let grammars = state.grammars.clone();
            let ignores_ends = self.stop.ignore_eos;
            let compile = move || grammars.compile(parameter, &form, ignores_ends);
            self.sampling.adjustments.grammar = Some(state.lanes.run_deep(compile).await?);
        }
        Ok(())
    }

    /// The requests of a prompt, one per choice. With a seed, choice i uses the seed + i,
    /// regardless of the other prompts in the request.
    pub fn requests(&self, prompt: &[u32], state: &State) -> Vec<Request> {
        let seed = |choice: usize| match self.seed {
            // With one seed, all choices of a request would be equal.
            Some(seed) => seed.wrapping_add(choice as u64),
            None => state.random_number(),
        };
        let request = |choice: usize| Request {
            input_ids: prompt.to_vec(),
            sampling: SamplingParams { seed: seed(choice), ..self.sampling.clone() },
            stop: self.stop.clone(),
        };
        (0..self.choices).map(request).collect()
    }
}

/// Names requests after the client's id; several ones get a numbered suffix, as in SGLang.
pub fn named(requests: Vec<Request>, name: Option<&str>) -> Vec<Named> {
    let several = requests.len() > 1;
    let name = |at: usize| name.map(|name| if several { format!("{name}_{at}") } else { name.to_owned() });
    requests.into_iter().enumerate().map(|(at, request)| Named { request, name: name(at) }).collect()
}

/// Maximum number of drafts per round of a request. Neither SGLang nor vLLM has a field for it; the
/// names are those that were proposed there (SGLang #30263, vLLM #55412), and vLLM's word for the
/// number.
fn most_drafts(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let most = fields.integer("num_speculative_tokens", 0..=i64::MAX)?;
    let off = fields.flag("disable_speculative_decoding")? | fields.flag("disable_spec_decode")?;
    let most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    Ok(if off { Some(0) } else { most })
}

/// The seed under OpenAI's or SGLang's name.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    Ok(fields.seed("seed")?.or(fields.seed("sampling_seed")?))
}

/// Numbers of first output tokens that do not end the output.
struct LeastTokens {
    /// Without tokens that would end it.
    before_ends: usize,
    /// Without stop strings that would.
    before_stop_strings: usize,
}

/// vLLM's `min_tokens` also holds back stop strings, SGLang's `min_new_tokens` only tokens.
fn least_tokens(fields: &mut Fields) -> Result<LeastTokens, ApiError> {
    let mut least = |name: &str| {
        let given = fields.integer(name, 0..=i64::MAX)?.unwrap_or_default();
        Ok::<usize, ApiError>(usize::try_from(given).unwrap_or(usize::MAX))
    };
    let before_stop_strings = least("min_tokens")?;
    Ok(LeastTokens { before_ends: before_stop_strings.max(least("min_new_tokens")?), before_stop_strings })
}

fn adjustments(
    fields: &mut Fields,
    facts: &WorkerFacts,
    defaults: &GenerationConfig,
    min_new_tokens: usize,
) -> Result<Adjustments, ApiError> {
    let mut penalty = |name: &str| Ok::<f32, ApiError>(fields.number(name, -2.0..=2.0)?.unwrap_or_default() as f32);
    let (presence_penalty, frequency_penalty) = (penalty("presence_penalty")?, penalty("frequency_penalty")?);
    let repetition_penalty = fields.number("repetition_penalty", 0.01..=10.0)?.map(|penalty| penalty as f32);
    Ok(Adjustments {
        presence_penalty,
        frequency_penalty,
        repetition_penalty: repetition_penalty.or(defaults.repetition_penalty).unwrap_or(1.0),
        bias: bias(fields, facts.capacity.vocab_size)?,
        min_new_tokens,
        grammar: None,
    })
}

/// OpenAI's `logit_bias`: an object from token ids, as strings, to numbers.
fn bias(fields: &mut Fields, vocabulary: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let given = match fields.value(NAME) {
        None => return Ok(Vec::new()),
        Some(Value::Object(given)) => given,
        Some(other) => return Err(fields.wrong(NAME, "an object from token ids to numbers", &other)),
    };
    if given.len() > MOST_BIASES {
        let count = given.len();
        return Err(fields.complain(NAME, format!("{NAME} has {count} tokens; the maximum is {MOST_BIASES}")));
    }
    let one = |(token, bias): (&String, &Value)| {
        let id = token.parse().ok().filter(|id: &u32| (*id as usize) < vocabulary);
        let id = id.ok_or_else(|| {
            fields.complain(
                NAME,
                format!("{NAME}: '{token}' is not a token id of this model, whose vocabulary has {vocabulary}"),
            )
        })?;
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        let bias = bias.ok_or_else(|| {
            fields.complain(NAME, format!("{NAME}: the bias of token {token} is not a number from -100 to 100"))
        })?;
        Ok((id, bias as f32))
    };
    given.iter().map(one).collect()
}

fn stop_conditions(fields: &mut Fields, lengths: LengthParameter) -> Result<StopConditions, ApiError> {
    let mut max_new_tokens = None;
    for name in lengths.names {
        let most =
            fields.integer(name, lengths.least..=i64::MAX)?.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        // Under several names, all of them are limits.
        max_new_tokens = max_new_tokens.into_iter().chain(most).min();
    }
    let stop = fields.texts("stop", MOST_STOPS)?;
    if stop.iter().any(String::is_empty) {
        return Err(fields.complain("stop", "a stop string is empty; leave it out"));
    }
    if stop.iter().any(|stop| stop.len() > LONGEST_STOP) {
        return Err(fields.complain("stop", format!("a stop string is longer than {LONGEST_STOP} bytes")));
    }
    let special = !fields.flag_or("skip_special_tokens", true)?;
    let text = match (fields.flag_or("detokenize", true)?, special) {
        (false, _) => OutputText::Off,
        (true, false) => OutputText::Plain,
        (true, true) => OutputText::WithSpecialTokens,
    };
    Ok(StopConditions {
        max_new_tokens,
        stop,
        text,
        // SGLang's and vLLM's name.
        keep_stop: fields.flag("no_stop_trim")? | fields.flag("include_stop_str_in_output")?,
        stop_token_ids: fields.tokens("stop_token_ids", MOST_STOPS)?,
        ignore_eos: fields.flag("ignore_eos")?,
        unsearched_tokens: 0,
    })
}

/// Refuses a request for another model. The name may be omitted.
///
/// # Errors
/// When it is the name of another model.
pub fn check_model(fields: &mut Fields, state: &State) -> Result<(), ApiError> {
    match fields.text("model")? {
        Some(requested) if !state.is_served(&requested) => Err(ApiError::no_model(&requested, state.model())),
        _ => Ok(()),
    }
}
