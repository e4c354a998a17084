//! The engine's promises, checked on whatever device the user has, with small random models made on the spot.

mod models;

use schemas::tree::TreeShape;

use self::models::RandomModels;
use crate::{
    Completion, DeviceChoice, Engine, EngineError, EngineOptions, Request, SamplingParams, ShapePolicy, StopConditions,
};

/// One promise and whether it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The promise.
    pub name: String,
    /// How it was broken; `None` if it was kept.
    pub failure: Option<String>,
}

/// Tree shapes that reach every case: chains, one step, wide, deep, more nodes than fit a machine word.
const SHAPES: [&str; 7] = ["1,1,2", "5,1,6", "1,6,7", "3,2,6", "4,4,20", "3,8,64", "4,8,80"];
/// Batch sizes around those that graphs are captured for.
const BATCHES: [usize; 3] = [1, 3, 9];
/// New tokens of each request.
const TOKENS: usize = 12;

/// Runs all checks and reports each as it ends.
///
/// # Errors
/// When the device cannot be used at all.
pub fn run(device: DeviceChoice, report: &mut dyn FnMut(Check)) -> Result<(), EngineError> {
    let models = RandomModels::write()?;
    for head in models::HEADS {
        for page_size in [1, 16] {
            let mut engine = load(&models, head, device, page_size)?;
            for (name, sampling) in [("greedy", SamplingParams::default()), ("sampled", sampled())] {
                for batch in BATCHES {
                    let name = format!(
                        "{head}, page size {page_size}: {name} output of batch {batch} does not depend on the tree"
                    );
                    report(Check { name, failure: same_output(&mut engine, &sampling, batch)? });
                }
            }
            let accepted = engine.statistics().accepted_drafts();
            report(Check {
                name: format!(
                    "{head}, page size {page_size}: some drafts were accepted, so that acceptance was tested"
                ),
                failure: (accepted == 0).then(|| "none was".into()),
            });
            let used = engine.statistics().pages_used;
            report(Check {
                name: format!("{head}, page size {page_size}: every page is given back"),
                failure: (used > 0).then(|| format!("{used} pages are still held")),
            });
        }
    }
    Ok(())
}

fn load(models: &RandomModels, head: &str, device: DeviceChoice, page_size: usize) -> Result<Engine, EngineError> {
    let largest = SHAPES.iter().filter_map(|shape| shape.parse::<TreeShape>().ok());
    let largest = largest.max_by_key(|shape| shape.num_draft_tokens).unwrap_or(TreeShape::OFF);
    Engine::load(EngineOptions {
        model_path: models.target(),
        draft_model_path: Some(models.head(head)),
        algorithm: Some(head.to_owned()),
        policy: ShapePolicy::fixed(largest),
        device,
        max_running_requests: BATCHES.into_iter().max().unwrap_or(1),
        page_size,
        ..EngineOptions::default()
    })
}

/// Every shape gives bit for bit what plain decoding of each request alone gives.
fn same_output(engine: &mut Engine, sampling: &SamplingParams, batch: usize) -> Result<Option<String>, EngineError> {
    let requests: Vec<Request> = (0..batch).map(|at| request(at, sampling)).collect();
    engine.set_policy(ShapePolicy::fixed(TreeShape::OFF))?;
    let alone: Vec<Completion> =
        requests.iter().map(|request| engine.run(vec![request.clone()])).collect::<Result<Vec<_>, _>>()?.concat();
    for shape in SHAPES.iter().filter_map(|shape| shape.parse::<TreeShape>().ok()) {
        engine.set_policy(ShapePolicy::fixed(shape))?;
        let together = engine.run(requests.clone())?;
        let differs = alone.iter().zip(&together).position(|(alone, one)| alone.output_ids != one.output_ids);
        if let Some(at) = differs {
            let (alone, together) = (&alone[at].output_ids, &together[at].output_ids);
            let place = alone.iter().zip(together).position(|(a, b)| a != b).unwrap_or(alone.len().min(together.len()));
            return Ok(Some(format!("shape {shape}, request {at} leaves plain decoding at token {place}")));
        }
    }
    Ok(None)
}

fn request(at: usize, sampling: &SamplingParams) -> Request {
    // Prompts of all lengths around page and chunk borders.
    let length = 1 + (at * 7) % 40;
    Request {
        input_ids: (0..length).map(|place| ((at * 31 + place * 17) % models::VOCABULARY) as u32).collect(),
        sampling: SamplingParams { seed: sampling.seed + at as u64, ..sampling.clone() },
        stop: StopConditions { max_new_tokens: Some(TOKENS), ignore_eos: true, ..StopConditions::default() },
    }
}

fn sampled() -> SamplingParams {
    SamplingParams { temperature: 0.9, top_p: 0.95, top_k: 12, seed: 11, ..SamplingParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_promises_are_kept_on_the_cpu() {
        let mut checks = Vec::new();
        run(DeviceChoice::Cpu, &mut |check| checks.push(check)).expect("the CPU is there");
        assert_eq!(checks.len(), 2 * 2 * (2 * BATCHES.len() + 2));
        let broken: Vec<_> = checks.iter().filter(|check| check.failure.is_some()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
