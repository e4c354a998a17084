//! Requests whose logits are adjusted, and log-probabilities of prompts, on a device against the CPU, in float32.

use std::sync::Arc;

use schemas::tree::TreeShape;

use super::{
    Plan,
    logprobs::agree,
    models::{Pair, RandomModels},
    request, shapes,
};
use crate::{
    Adjustments, Completion, Constraint, DeviceChoice, Engine, EngineError, Event, Follow, Grammar, PromptLogprobs,
    Request, SamplingParams, ShapePolicy, backend::TokenLogprobs,
};

/// Tokens that a [`Rising`] grammar allows after one.
const REACH: u32 = 40;

/// A grammar: each token is one of the next above the last, and after some tokens there is none.
#[derive(Debug)]
struct Rising {
    /// Tokens after which it fails.
    most: usize,
}

/// A place in [`Rising`].
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

/// Requests that run together: plain ones between those with adjustments.
fn requests(plan: Plan) -> Vec<Request> {
    let none = Adjustments::default();
    let rising = |most| Some(Grammar(Arc::new(Rising { most })));
    let penalties = Adjustments { presence_penalty: 1.5, frequency_penalty: 0.5, ..none.clone() };
    let bias = (0..9).map(|token| (token * 7, if token % 2 == 0 { 8.0 } else { f32::NEG_INFINITY })).collect();
    let all = [
        none.clone(),
        penalties,
        Adjustments { repetition_penalty: 1.7, bias, ..none.clone() },
        Adjustments { grammar: rising(usize::MAX), ..none.clone() },
        none.clone(),
        Adjustments { grammar: rising(3), ..none },
    ];
    let request = |(at, adjustments): (usize, Adjustments)| {
        let sampling = if at % 2 == 1 { super::sampled() } else { SamplingParams::default() };
        let prompt_logprobs = (at < 2).then_some(PromptLogprobs { from: at, alternatives: 3 });
        let logprobs = (at == 3).then_some(2);
        request(at + 3, &SamplingParams { adjustments, prompt_logprobs, logprobs, ..sampling }, plan.tokens)
    };
    all.into_iter().enumerate().map(request).collect()
}

/// The device yields what the CPU yields.
pub fn adjusted_as_on_cpu(
    engine: &mut Engine,
    models: &RandomModels,
    pair: Pair,
    plan: Plan,
) -> Result<Option<String>, EngineError> {
    let setting = super::Setting::new(DeviceChoice::Cpu, 1, "float32", pair, 16);
    let mut cpu = super::load(models, setting, plan, false)?;
    let requests = requests(plan);
    for shape in shapes(plan).chain([TreeShape::OFF]) {
        engine.set_policy(ShapePolicy::fixed(shape))?;
        cpu.set_policy(ShapePolicy::fixed(shape))?;
        let (found, expected) = (completions(engine, &requests)?, completions(&mut cpu, &requests)?);
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let same = found.output_ids == expected.output_ids
                && found.finish_reason == expected.finish_reason
                && found.accept_histogram == expected.accept_histogram
                && alike(&found.prompt_logprobs, &expected.prompt_logprobs);
            if !same {
                return Ok(Some(format!("shape {shape}, request {at}: {found:?}, on the CPU {expected:?}")));
            }
        }
    }
    Ok(None)
}

fn alike(found: &[TokenLogprobs], expected: &[TokenLogprobs]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(found, expected)| agree(found, expected))
}

/// Requests that run together, to their ends.
fn completions(engine: &mut Engine, requests: &[Request]) -> Result<Vec<Completion>, EngineError> {
    let ids = requests.iter().map(|request| engine.submit(request.clone())).collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    while !engine.is_idle() {
        all.extend(engine.step()?.into_iter().filter_map(|event| match event {
            Event::Finished { request, completion } => Some((request, *completion)),
            Event::Tokens { .. } => None,
        }));
    }
    all.sort_by_key(|(id, _)| ids.iter().position(|one| one == id));
    Ok(all.into_iter().map(|(_, completion)| completion).collect())
}
