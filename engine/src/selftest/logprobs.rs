//! Compares tokens and log-probabilities between a device and the CPU, in float32.

use super::{SelftestExtent, for_each_shape, request, shapes};
use crate::{
    Engine, EngineError, Event, Request, RequestId, SamplingParams,
    backend::{ProducedToken, TokenLogprobs},
};

/// Float sums in a different order change a log-probability by less than this.
const TOLERANCE: f32 = 1e-3;

/// The device gives the same tokens and log-probabilities as the CPU.
pub fn same_as_cpu(engine: &mut Engine, cpu: &mut Engine, plan: SelftestExtent) -> Result<Option<String>, EngineError> {
    let wanted = [Some(4), None, Some(0)];
    let requests: Vec<Request> = wanted
        .iter()
        .enumerate()
        .map(|(at, logprobs)| {
            request(at + 2, &SamplingParams { logprobs: *logprobs, ..Default::default() }, plan.tokens)
        })
        .collect();
    for_each_shape(engine, cpu, shapes(plan).take(3), |engine, cpu| {
        let (found, expected) = (tokens(engine, &requests)?, tokens(cpu, &requests)?);
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            if let Some(place) = found.iter().zip(expected).position(|(found, expected)| !same(found, expected)) {
                let (found, expected) = (&found[place], &expected[place]);
                return Ok(Some(format!("request {at}, token {place}: {found:?}, on the CPU {expected:?}")));
            }
        }
        Ok(None)
    })
}

/// The tokens of requests that run together.
pub fn tokens(engine: &mut Engine, requests: &[Request]) -> Result<Vec<Vec<ProducedToken>>, EngineError> {
    let ids: Vec<RequestId> =
        requests.iter().map(|request| engine.submit(request.clone())).collect::<Result<_, _>>()?;
    let mut all = vec![Vec::new(); ids.len()];
    while !engine.is_idle() {
        engine.step(&mut |event| {
            if let Event::Tokens { request, tokens, .. } = event
                && let Some(at) = ids.iter().position(|id| *id == request)
            {
                all[at].extend(tokens);
            }
        })?;
    }
    Ok(all)
}

/// Whether two devices give a token the same log-probabilities, up to the order of float sums.
pub fn agree(found: &TokenLogprobs, expected: &TokenLogprobs) -> bool {
    let close = |a: f32, b: f32| (a - b).abs() <= TOLERANCE;
    let alike = |((a, x), (b, y)): (&(u32, f32), &(u32, f32))| a == b && close(*x, *y);
    close(found.logprob, expected.logprob)
        && found.top.len() == expected.top.len()
        && found.top.iter().zip(&expected.top).all(alike)
}

fn same(found: &ProducedToken, expected: &ProducedToken) -> bool {
    found.id == expected.id
        && match (&found.logprobs, &expected.logprobs) {
            (None, None) => true,
            (Some(found), Some(expected)) => agree(found, expected),
            _ => false,
        }
}
