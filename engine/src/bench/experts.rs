//! The experts that rounds read.

use schemas::tree::TreeShape;
use serde::Serialize;

use super::RandomBatch;
use crate::{
    Engine,
    backend::{ExpertReads, LayerReads},
    spec::{CountedShares, ExpertCost},
};

/// The routed experts that rounds read, counted on the device in a run that is not timed, and what
/// rows would read that choose uniformly and independently.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpertsRead {
    /// Number of routed experts of a layer.
    pub experts: usize,
    /// Distinct experts that the target reads per layer and round, on average.
    pub target: Option<f64>,
    /// The same if rows chose uniformly and independently.
    pub target_even: Option<f64>,
    /// Distinct experts that the draft reads per layer and pass, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<f64>,
    /// [`Bench::memory_floor_ms`](super::Bench::memory_floor_ms) if rows chose uniformly and
    /// independently.
    pub even_memory_floor_ms: f64,
    /// Whether the router was replaced by one that chooses all experts equally often.
    pub uniform_router: bool,
    /// Number of rounds that were counted.
    pub rounds: usize,
}

impl ExpertsRead {
    pub(super) fn for_round(
        engine: &Engine,
        shape: TreeShape,
        load: &RandomBatch,
        reads: ExpertReads,
        even_memory_floor_ms: f64,
    ) -> Self {
        let rows = shape.verified_rows(load.batch_size);
        let experts = |reads: LayerReads| reads.of.checked_div(reads.readings);
        let of_target = experts(reads.target);
        let even = |cost: ExpertCost| of_target.map(|experts| cost.touched(rows) * experts as f64);
        Self {
            experts: of_target.or(experts(reads.draft)).unwrap_or_default(),
            target: reads.target.mean(),
            target_even: engine.cost().target.experts.and_then(even),
            draft: reads.draft.mean(),
            even_memory_floor_ms,
            uniform_router: engine.options().uniform_router,
            rounds: reads.rounds,
        }
    }
}

impl ExpertReads {
    /// What the floor needs of it.
    pub(super) fn shares(&self) -> CountedShares {
        CountedShares { target: self.target.share(), draft: self.draft.share() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        DeviceChoice, EngineOptions, ShapePolicy,
        bench::{Bench, BenchPlan, run},
        selftest::models::{Pair, RandomModels},
    };

    fn figures(models: &RandomModels, pair: Pair, shape: TreeShape, device: DeviceChoice) -> Bench {
        let mut engine = Engine::load(EngineOptions {
            model_path: models.target(pair),
            draft_model_path: models.draft(pair),
            algorithm: Some(pair.algorithm().to_owned()),
            policy: ShapePolicy::fixed(shape),
            dtype: "float32".into(),
            device,
            max_running_requests: 2,
            capture_sizes: vec![2],
            context_length: Some(64),
            disable_radix_cache: true,
            ..EngineOptions::default()
        })
        .expect("the models load");
        let load = RandomBatch { batch_size: 2, input_len: 5, output_len: 12, seed: 3 };
        let (startup, shape_change) = (Duration::ZERO, Duration::ZERO);
        run(&mut engine, &BenchPlan { load, repeats: 1, bandwidth: 1e15, startup, shape_change }).expect("it runs")
    }

    #[test]
    fn experts_are_counted_alike_on_both_devices_and_the_floor_reads_those_that_were_counted() {
        let models = RandomModels::write_seeded(5).expect("a folder");
        let chain = TreeShape::chain(2);
        for (pair, shape) in [(Pair::Qwen3Moe, TreeShape::OFF), (Pair::Qwen3Moe, chain), (Pair::Glm, chain)] {
            let [cpu, gpu] = [DeviceChoice::Cpu, DeviceChoice::Emulator]
                .map(|device| figures(&models, pair, shape, device).experts.expect("layers of experts"));
            let what = format!("{pair:?}, {shape}: {cpu:?}, {gpu:?}");
            // Whether requests that have ended run along in further rounds depends on the rounds in
            // flight.
            let close =
                |one: Option<f64>, other: Option<f64>| (one.unwrap_or(-1.0) - other.unwrap_or(-1.0)).abs() < 0.35;
            assert!(close(cpu.target, gpu.target), "{what}");
            // A GPU's extension has as many rows for every round, of which the CPU's has those of
            // accepted tokens.
            assert!(cpu.draft.is_none_or(|count| gpu.draft.is_some_and(|other| count <= other + 0.35)), "{what}");
            assert_eq!(cpu.draft.is_some(), gpu.draft.is_some(), "{what}");
            assert_eq!((cpu.target_even, cpu.experts), (gpu.target_even, gpu.experts), "{what}");
            // The EAGLE-3 head of the one and the MTP layer of the other have experts too.
            assert_eq!(cpu.draft.is_some(), !shape.is_off(), "{what}");
            let rows = if shape.is_off() { 2 } else { 6 };
            for read in [cpu, gpu] {
                let count = read.target.expect("a count");
                assert!((1.0..=read.experts as f64).contains(&count) && count <= 2.0 * rows as f64, "{what}");
                assert!(read.rounds > 0 && !read.uniform_router, "{what}");
            }
        }
    }

    #[test]
    fn a_model_without_experts_has_no_count() {
        let models = RandomModels::write_seeded(5).expect("a folder");
        assert_eq!(figures(&models, Pair::Mimo, TreeShape::OFF, DeviceChoice::Cpu).experts, None);
    }
}
