//! The parameters that chat, completions and SGLang's own API share.

use engine::{Adjustments, OutputText, Request, SamplingParams, StopConditions, checkpoint::GenerationConfig};
use serde_json::Value;

use super::{
    error::ApiError,
    fields::Fields,
    grammar::Form,
    lanes::Wanted,
    state::State,
    worker::{Facts, Named},
};

/// Most stop strings and stop tokens of a request.
const MOST_STOPS: usize = 16;
/// Longest stop string in bytes.
const LONGEST_STOP: usize = 1024;
/// Most choices of a request.
const MOST_CHOICES: i64 = 128;
/// Most alternatives with a token.
pub const MOST_LOGPROBS: i64 = 20;

/// Most tokens with a bias.
const MOST_BIASES: usize = 4096;

/// How a request is to be sampled and where it ends, n times.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Sampling, but for the seed.
    pub sampling: SamplingParams,
    /// Where it ends.
    pub stop: StopConditions,
    /// Choices of each prompt.
    pub choices: usize,
    /// The seed of the first choice; each request gets a random one where it is absent.
    pub seed: Option<u64>,
    /// What the output has to be, and the parameter that says so.
    pub form: Option<(&'static str, Form)>,
}

/// Where an API says how many tokens to produce: the first of the names that is there.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// The names.
    pub names: &'static [&'static str],
    /// The minimum number of tokens: 0 if a response may consist of the prompt's log-probabilities only.
    pub least: i64,
}

impl Parameters {
    /// Reads them. What is absent is as in `defaults`, and neutral where these are silent: temperature and top_p are 1.
    ///
    /// # Errors
    /// When one has the wrong type or is out of range.
    pub fn read(
        fields: &mut Fields,
        facts: &Facts,
        defaults: &GenerationConfig,
        lengths: Lengths,
    ) -> Result<Self, ApiError> {
        let mut number = |name: &str, most: f64, default: Option<f32>, neutral: f32| {
            let given = fields.number(name, 0.0..=most)?.map(|number| number as f32);
            Ok::<f32, ApiError>(given.or(default).unwrap_or(neutral))
        };
        let temperature = number("temperature", 100.0, defaults.temperature, 1.0)?;
        let top_p = number("top_p", 1.0, defaults.top_p, 1.0)?;
        let min_p = number("min_p", 1.0, defaults.min_p, 0.0)?;
        // -1 is how SGLang and vLLM write that all are kept.
        let top_k = fields.integer("top_k", -1..=i64::MAX)?.map(|top_k| usize::try_from(top_k).unwrap_or_default());
        let choices = fields.integer("n", 1..=MOST_CHOICES)?.unwrap_or(1);
        // The best of n among n is what n means.
        if fields.integer("best_of", 1..=MOST_CHOICES)?.is_some_and(|best_of| best_of != choices) {
            return Err(fields.complain("best_of", "best_of is not supported by this server unless it equals n"));
        }
        Ok(Self {
            sampling: SamplingParams {
                temperature,
                top_p,
                top_k: top_k.or(defaults.top_k).unwrap_or_default(),
                min_p,
                seed: 0,
                logprobs: None,
                adjustments: adjustments(fields, facts, defaults)?,
                prompt_logprobs: None,
            },
            stop: stop_conditions(fields, lengths)?,
            choices: choices as usize,
            seed: seed(fields)?,
            form: Form::read(fields)?,
        })
    }

    /// Compiles what the output has to be, if anything.
    ///
    /// # Errors
    /// When it is not a grammar, or one that cannot be followed.
    pub async fn compile(&mut self, state: &State) -> Result<(), ApiError> {
        if let Some((parameter, form)) = self.form.take() {
            let grammars = state.grammars.clone();
            let bytes = form.bytes();
            let compile = move |_: &Wanted| grammars.compile(parameter, &form);
            self.sampling.adjustments.grammar = Some(state.lanes.run(bytes, compile).await?);
        }
        Ok(())
    }

    /// The requests of a prompt: as many as there are choices. With a seed, a prompt's choices do not depend on the prompts
    /// beside it, and choice i has the seed + i.
    pub fn requests(&self, prompt: &[u32], state: &State) -> Vec<Request> {
        let seed = |choice: usize| match self.seed {
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

/// Requests under the name that their client gave: those of several have its name and their number, as in SGLang.
pub fn named(requests: Vec<Request>, name: Option<&str>) -> Vec<Named> {
    let several = requests.len() > 1;
    let name = |at: usize| name.map(|name| if several { format!("{name}_{at}") } else { name.to_owned() });
    requests.into_iter().enumerate().map(|(at, request)| Named { request, name: name(at) }).collect()
}

/// The seed by OpenAI's name or by SGLang's.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    Ok(fields.seed("seed")?.or(fields.seed("sampling_seed")?))
}

fn adjustments(fields: &mut Fields, facts: &Facts, defaults: &GenerationConfig) -> Result<Adjustments, ApiError> {
    let mut penalty = |name: &str| Ok::<f32, ApiError>(fields.number(name, -2.0..=2.0)?.unwrap_or_default() as f32);
    let (presence_penalty, frequency_penalty) = (penalty("presence_penalty")?, penalty("frequency_penalty")?);
    let repetition_penalty = fields.number("repetition_penalty", 0.01..=10.0)?.map(|penalty| penalty as f32);
    let mut least = 0;
    for name in ["min_tokens", "min_new_tokens"] {
        let given = fields.integer(name, 0..=i64::MAX)?.map(|given| usize::try_from(given).unwrap_or(usize::MAX));
        least = given.unwrap_or_default().max(least);
    }
    Ok(Adjustments {
        presence_penalty,
        frequency_penalty,
        repetition_penalty: repetition_penalty.or(defaults.repetition_penalty).unwrap_or(1.0),
        bias: bias(fields, facts.capacity.vocab_size)?,
        min_new_tokens: least,
        grammar: None,
    })
}

/// OpenAI's `logit_bias`: from token ids, which are names in JSON, to numbers.
fn bias(fields: &mut Fields, vocabulary: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let given = match fields.value(NAME) {
        None => return Ok(Vec::new()),
        Some(Value::Object(given)) => given,
        Some(other) => return Err(fields.wrong(NAME, "an object from token ids to numbers", &other)),
    };
    if given.len() > MOST_BIASES {
        let count = given.len();
        return Err(fields.complain(NAME, format!("{NAME} has {count} tokens, at most {MOST_BIASES} are taken")));
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

fn stop_conditions(fields: &mut Fields, lengths: Lengths) -> Result<StopConditions, ApiError> {
    let mut max_new_tokens = None;
    for name in lengths.names {
        let most =
            fields.integer(name, lengths.least..=i64::MAX)?.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        max_new_tokens = max_new_tokens.or(most);
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
        // SGLang's name and vLLM's.
        keep_stop: fields.flag("no_stop_trim")? | fields.flag("include_stop_str_in_output")?,
        stop_token_ids: fields.tokens("stop_token_ids", MOST_STOPS)?,
        ignore_eos: fields.flag("ignore_eos")?,
    })
}

/// Refuses a request for another model; the name may be omitted.
///
/// # Errors
/// When it is the name of another model.
pub fn check_model(fields: &mut Fields, state: &State) -> Result<(), ApiError> {
    match fields.text("model")? {
        Some(asked) if !state.is_served(&asked) => Err(ApiError::no_model(&asked, state.model())),
        _ => Ok(()),
    }
}
