//! Replay against rounds: what shapes accept along known texts, without running them.

use std::ops::ControlFlow;

use schemas::tree::TreeShape;

use super::{Plan, alone, request, sampled, shapes};
use crate::{Engine, EngineError, ReplayText, Request, SamplingParams, ShapePolicy};

/// A replay counts, request by request, what rounds of each shape count.
pub fn same_as_rounds(engine: &mut Engine, plan: Plan) -> Result<Option<String>, EngineError> {
    let batch = plan.batches.iter().copied().find(|batch| *batch > 1).unwrap_or(1);
    let requests: Vec<Request> = (0..batch)
        .map(|at| request(at, &if at % 2 == 0 { SamplingParams::default() } else { sampled() }, plan.tokens))
        .collect();
    let plain = alone(engine, &requests)?;
    let texts: Vec<ReplayText> =
        requests.iter().zip(&plain).map(|(request, completion)| ReplayText::new(request, completion)).collect();
    let shapes: Vec<TreeShape> = shapes(plan).collect();
    let Some(replayed) = engine.replay(&texts, &shapes, &mut |_| ControlFlow::Continue(()))? else {
        return Ok(Some("the replay broke off".into()));
    };
    for (at, shape) in shapes.iter().enumerate() {
        engine.set_policy(ShapePolicy::fixed(*shape))?;
        for (number, (completion, replayed)) in engine.run(requests.clone())?.iter().zip(&replayed).enumerate() {
            let (found, expected) = (&replayed[at].accept_histogram, &completion.accept_histogram);
            if found != expected {
                return Ok(Some(format!(
                    "shape {shape}, request {number}: {found:?} replayed, {expected:?} in rounds"
                )));
            }
        }
    }
    Ok(None)
}
