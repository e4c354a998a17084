//! Compares replay with rounds: what shapes accept along known texts.

use std::{fs, ops::ControlFlow};

use schemas::tree::TreeShape;

use super::{SelftestExtent, alone, request, sampled, shapes};
use crate::{Engine, EngineError, KeepStates, ReplayText, Request, SamplingParams, ShapeAcceptance, ShapePolicy};

/// Maximum size of the kept states in bytes, for some short texts of a small model.
const MOST_KEPT: u64 = 1 << 30;

/// For each request, a replay counts the same as rounds of each shape, and so does a replay that
/// reads the target's states from a file.
pub fn same_as_rounds(engine: &mut Engine, plan: SelftestExtent) -> Result<Option<String>, EngineError> {
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
    if let Some(difference) = same_from_file(engine, &texts, &shapes, &replayed)? {
        return Ok(Some(difference));
    }
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

/// The first replay writes the states, the second one reads them.
fn same_from_file(
    engine: &mut Engine,
    texts: &[ReplayText],
    shapes: &[TreeShape],
    expected: &[Vec<ShapeAcceptance>],
) -> Result<Option<String>, EngineError> {
    // Next to the random models, in a folder that is deleted with them.
    let path = engine.options().model_path.with_file_name("states.bin");
    let mut said = Vec::new();
    let mut replay = || {
        let mut note = |words: &str| said.push(words.to_owned());
        let keep = KeepStates { path: &path, most_bytes: MOST_KEPT, note: &mut note };
        engine.replay_keeping(texts, shapes, keep, &mut |_| ControlFlow::Continue(()))
    };
    let found = replay().and_then(|first| Ok([first, replay()?]));
    // The file may not have been written; the note then says so.
    let _ = fs::remove_file(&path);
    if said.len() != 1 || found?.iter().any(|found| found.as_deref() != Some(expected)) {
        return Ok(Some(format!("a replay from states in a file differs: {}", said.join("; "))));
    }
    Ok(None)
}
