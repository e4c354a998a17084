//! A running batch whose size changes continually, across the capture sizes: the kind of load under
//! which SGLang's CUDA graphs read leftovers of an earlier, larger batch (issues #9521, #9888 and
//! #9481).

use std::collections::HashMap;

use super::{SelftestExtent, alone, request, sampled, shapes};
use crate::{Engine, EngineError, Event, Request, RequestId, SamplingParams, ShapePolicy, random::uniform};

/// Every request gets the output that it would get alone, regardless of what else joins and leaves
/// the batch.
pub fn shrinking_and_growing(engine: &mut Engine, plan: SelftestExtent) -> Result<Option<String>, EngineError> {
    let largest = plan.batches.iter().copied().max().unwrap_or(1);
    let requests: Vec<Request> = (0..3 * largest)
        .map(|at| {
            let sampling = if at % 3 == 0 { sampled() } else { SamplingParams::default() };
            // Requests end at different times.
            request(at, &sampling, 1 + (at * 5) % (2 * plan.tokens))
        })
        .collect();
    let alone = alone(engine, &requests)?;
    for (number, shape) in shapes(plan).enumerate() {
        engine.set_policy(ShapePolicy::fixed(shape))?;
        let mut waiting = requests.iter().enumerate();
        let mut places: HashMap<RequestId, usize> = HashMap::new();
        let mut steps = 0;
        loop {
            // Alternates between waves of requests and single ones.
            let draw = uniform(number as u64, steps);
            let wave = if draw < 0.15 { largest } else { usize::from(draw < 0.5) };
            for (at, request) in waiting.by_ref().take(wave) {
                places.insert(engine.submit(request.clone())?, at);
            }
            steps += 1;
            let mut differs = None;
            engine.step(&mut |event| {
                if let Event::Finished { request, completion } = event
                    && let Some(at) = places.remove(&request)
                    && completion.output_ids != alone[at].output_ids
                {
                    differs = Some(at);
                }
            })?;
            if let Some(at) = differs {
                return Ok(Some(format!("shape {shape}: request {at} differs from its output alone")));
            }
            // A round without live requests may still be in flight.
            if waiting.len() == 0 && engine.is_idle() {
                break;
            }
        }
    }
    Ok(None)
}
