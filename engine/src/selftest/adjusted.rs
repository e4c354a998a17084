//! Compares requests with adjusted logits, and log-probabilities of prompts, between a device and
//! the CPU, in float32.

use std::sync::Arc;

use schemas::tree::TreeShape;

use super::{SelftestExtent, for_each_shape, logprobs::agree, request, shapes};
use crate::{
    Adjustments, Completion, Constraint, Engine, EngineError, Follow, Grammar, PromptLogprobs, Request, SamplingParams,
    backend::TokenLogprobs,
};

/// Number of tokens that a [`Rising`] grammar allows after each token.
const REACH: u32 = 40;

/// A grammar: each token is among the next [`REACH`] above the previous one; after some tokens it
/// fails.
#[derive(Debug)]
struct Rising {
    /// Number of tokens after which it fails.
    most: usize,
}

/// State of an output in [`Rising`].
#[derive(Debug)]
struct At {
    last: u32,
    left: usize,
}

impl Constraint for Rising {
    fn start(&self) -> Box<dyn Follow> {
        Box::new(At { last: 0, left: self.most })
    }
}

impl Follow for At {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        if self.left == 0 {
            return Err("the grammar has ended".into());
        }
        let allowed: Vec<usize> = (1..=REACH).map(|step| (self.last + step) as usize % logits.len()).collect();
        for (token, logit) in logits.iter_mut().enumerate() {
            if !allowed.contains(&token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn push(&mut self, token: u32) {
        self.last = token;
        self.left = self.left.saturating_sub(1);
    }
}

/// Greedy with penalties.
pub fn penalised() -> SamplingParams {
    let adjustments = Adjustments { presence_penalty: 1.5, frequency_penalty: 0.5, ..Adjustments::default() };
    SamplingParams { adjustments, ..SamplingParams::default() }
}

/// Requests that run together: plain ones between ones with adjustments.
pub fn requests(tokens: usize) -> Vec<Request> {
    let none = Adjustments::default();
    let rising = |most| Some(Grammar(Arc::new(Rising { most })));
    let bias = (0..9).map(|token| (token * 7, if token % 2 == 0 { 8.0 } else { f32::NEG_INFINITY })).collect();
    let all = [
        none.clone(),
        penalised().adjustments,
        Adjustments { repetition_penalty: 1.7, bias, ..none.clone() },
        Adjustments { grammar: rising(usize::MAX), ..none.clone() },
        none.clone(),
        Adjustments { grammar: rising(3), ..none },
    ];
    let request = |(at, adjustments): (usize, Adjustments)| {
        let sampling = if at % 2 == 1 { super::sampled() } else { SamplingParams::default() };
        let prompt_logprobs = (at < 2).then_some(PromptLogprobs { from: at, alternatives: 3 });
        let logprobs = (at == 3).then_some(2);
        request(at + 3, &SamplingParams { adjustments, prompt_logprobs, logprobs, ..sampling }, tokens)
    };
    all.into_iter().enumerate().map(request).collect()
}

/// The device yields the same as the CPU.
pub(super) fn adjusted_as_on_cpu(
    engine: &mut Engine,
    cpu: &mut Engine,
    plan: SelftestExtent,
) -> Result<Option<String>, EngineError> {
    let requests = requests(plan.tokens);
    for_each_shape(engine, cpu, shapes(plan).chain([TreeShape::OFF]), |engine, cpu| {
        let (found, expected) = (engine.run(requests.clone())?, cpu.run(requests.clone())?);
        let differ = |(found, expected): (&Completion, &Completion)| {
            found.output_ids != expected.output_ids
                || found.finish_reason != expected.finish_reason
                || found.accept_histogram != expected.accept_histogram
                || !alike(&found.prompt_logprobs, &expected.prompt_logprobs)
        };
        let at = found.iter().zip(&expected).position(differ);
        Ok(at.map(|at| format!("request {at}: {:?}, on the CPU {:?}", found[at], expected[at])))
    })
}

fn alike(found: &[TokenLogprobs], expected: &[TokenLogprobs]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(found, expected)| agree(found, expected))
}
