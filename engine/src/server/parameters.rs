//! The parameters that chat, completions and SGLang's own API share.

use super::{error::ApiError, fields::Fields, state::State};
use crate::{Request, SamplingParams, StopConditions};

/// Most stop strings of a request.
const MOST_STOPS: usize = 16;
/// Longest stop string in bytes.
const LONGEST_STOP: usize = 1024;
/// Most choices of a request.
const MOST_CHOICES: i64 = 128;
/// Most alternatives with a token.
pub const MOST_LOGPROBS: i64 = 20;

/// What is not implemented. Never ignored: a client that asks for it is told.
const UNSUPPORTED: [&str; 14] = [
    "audio",
    "best_of",
    "frequency_penalty",
    "function_call",
    "functions",
    "guided_json",
    "logit_bias",
    "modalities",
    "presence_penalty",
    "response_format",
    "suffix",
    "tool_choice",
    "tools",
    "web_search_options",
];

/// How a request is to be sampled and where it ends, n times.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Sampling; the seed is that of the first choice.
    pub sampling: SamplingParams,
    /// Where it ends.
    pub stop: StopConditions,
    /// Choices of each prompt.
    pub choices: usize,
}

impl Parameters {
    /// Reads them. What is absent is as generation_config.json says, as in SGLang and vLLM; temperature and top_p are 1
    /// where it does not.
    ///
    /// # Errors
    /// When one has the wrong type, is out of range, or is not supported.
    pub fn read(fields: &Fields, state: &State) -> Result<Self, ApiError> {
        // best_of of one choice is what everybody does.
        let neutral = fields.value("best_of").is_some_and(|value| value.as_i64() == Some(1));
        let unsupported: Vec<&str> = UNSUPPORTED.into_iter().filter(|name| !(neutral && *name == "best_of")).collect();
        fields.refuse(&unsupported)?;
        if fields.number("repetition_penalty", 0.0, f64::MAX)?.is_some_and(|penalty| penalty != 1.0) {
            return Err(ApiError::parameter(
                "repetition_penalty",
                "repetition_penalty is not supported by this server",
            ));
        }
        let defaults = &state.worker.facts().generation;
        let number = |name: &str, most: f64, default: Option<f32>, neutral: f32| {
            let given = fields.number(name, 0.0, most)?.map(|number| number as f32);
            Ok::<f32, ApiError>(given.or(default).unwrap_or(neutral))
        };
        let top_k = fields.integer("top_k", -1, i64::MAX)?.map(|top_k| usize::try_from(top_k).unwrap_or_default());
        let stop = fields.texts("stop", MOST_STOPS)?;
        if stop.iter().any(|stop| stop.len() > LONGEST_STOP) {
            return Err(ApiError::parameter("stop", format!("a stop string is longer than {LONGEST_STOP} bytes")));
        }
        let most = |name: &str| {
            let number = fields.integer(name, 1, i64::MAX)?;
            Ok::<Option<usize>, ApiError>(number.and_then(|number| usize::try_from(number).ok()))
        };
        Ok(Self {
            sampling: SamplingParams {
                temperature: number("temperature", 100.0, defaults.temperature, 1.0)?,
                top_p: number("top_p", 1.0, defaults.top_p, 1.0)?,
                top_k: top_k.or(defaults.top_k).unwrap_or_default(),
                min_p: number("min_p", 1.0, defaults.min_p, 0.0)?,
                seed: match fields.integer("seed", i64::MIN, i64::MAX)? {
                    Some(seed) => seed as u64,
                    None => state.random_number(),
                },
                logprobs: None,
            },
            stop: StopConditions {
                max_new_tokens: most("max_completion_tokens")?.or(most("max_tokens")?).or(most("max_new_tokens")?),
                stop,
                stop_token_ids: fields.tokens("stop_token_ids", MOST_STOPS)?,
                ignore_eos: fields.flag("ignore_eos")?,
            },
            choices: fields.integer("n", 1, MOST_CHOICES)?.unwrap_or(1) as usize,
        })
    }

    /// The requests of some prompts: `choices` of each, with seeds of their own.
    pub fn requests(&self, prompts: &[Vec<u32>]) -> Vec<Request> {
        let each = prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, self.choices));
        each.enumerate()
            .map(|(at, prompt)| Request {
                input_ids: prompt.clone(),
                sampling: SamplingParams { seed: self.sampling.seed.wrapping_add(at as u64), ..self.sampling.clone() },
                stop: self.stop.clone(),
            })
            .collect()
    }
}

/// Refuses a request for another model; the name may be left out.
pub fn check_model(fields: &Fields, state: &State) -> Result<(), ApiError> {
    match fields.text("model")? {
        Some(asked) if asked != state.model() && asked != "default" => Err(ApiError::no_model(asked, state.model())),
        _ => Ok(()),
    }
}
