//! The parameters that chat, completions and SGLang's own API share.

use engine::{OutputText, Request, SamplingParams, StopConditions, checkpoint::GenerationConfig};

use super::{error::ApiError, fields::Fields, state::State};

/// Most stop strings and stop tokens of a request.
const MOST_STOPS: usize = 16;
/// Longest stop string in bytes.
const LONGEST_STOP: usize = 1024;
/// Most choices of a request.
const MOST_CHOICES: i64 = 128;
/// Most alternatives with a token.
pub const MOST_LOGPROBS: i64 = 20;

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
}

impl Parameters {
    /// Reads them. What is absent is as in `defaults`, and neutral where these are silent: temperature and top_p are 1.
    /// The first of `lengths` that is there says how many tokens to produce.
    ///
    /// # Errors
    /// When one has the wrong type or is out of range.
    pub fn read(fields: &mut Fields, defaults: &GenerationConfig, lengths: &[&str]) -> Result<Self, ApiError> {
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
            },
            stop: stop_conditions(fields, lengths)?,
            choices: choices as usize,
            seed: fields.seed("seed")?,
        })
    }

    /// The requests of some prompts: `choices` of each. With a seed, a prompt's choices do not depend on the prompts
    /// beside it, and choice i has the seed + i.
    pub fn requests(&self, prompts: Vec<Vec<u32>>, state: &State) -> Vec<Request> {
        let seed = |choice: usize| match self.seed {
            Some(seed) => seed.wrapping_add(choice as u64),
            None => state.random_number(),
        };
        let request = |prompt: &[u32], choice: usize| Request {
            input_ids: prompt.to_vec(),
            sampling: SamplingParams { seed: seed(choice), ..self.sampling.clone() },
            stop: self.stop.clone(),
        };
        prompts.iter().flat_map(|prompt| (0..self.choices).map(|choice| request(prompt, choice))).collect()
    }
}

fn stop_conditions(fields: &mut Fields, lengths: &[&str]) -> Result<StopConditions, ApiError> {
    let mut max_new_tokens = None;
    for name in lengths {
        let most = fields.integer(name, 1..=i64::MAX)?.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
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

/// Refuses a request for another model; the name may be left out.
///
/// # Errors
/// When it is the name of another model.
pub fn check_model(fields: &mut Fields, state: &State) -> Result<(), ApiError> {
    match fields.text("model")? {
        Some(asked) if !state.is_served(&asked) => Err(ApiError::no_model(&asked, state.model())),
        _ => Ok(()),
    }
}
