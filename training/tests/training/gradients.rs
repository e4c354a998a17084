//! Compares gradients of every kind of head and loss with finite differences, in float64.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use engine::{EngineOptions, TextStates};
use training::{
    batch::{DraftPlan, Known, Left, TrainBatch, Window},
    objective::{ObjectiveLoss, TrainObjective},
};

use crate::common::{BlockKind, Loaded, block_head, block_options, load, options, tokens};

/// Number of compared places per tensor.
const PLACES: usize = 3;
/// Step of the finite differences, on each side.
const STEP: f64 = 1e-5;

/// Length of a text.
const TOKENS: usize = 11;

/// States that look like a target's.
fn states(options: &EngineOptions) -> TextStates {
    let models = engine::ModelFiles::open(options).expect("the files are there");
    let (spec, hidden) = (models.draft.expect("a draft"), models.target.hidden);
    let positions = TOKENS - 1;
    let wave = |count: usize, phase: f64| -> Vec<f32> {
        (0..count).map(|at| ((at as f64 * 0.7 + phase).sin() * 1.3 + (at as f64 * 0.13).cos()) as f32).collect()
    };
    let captured = spec.captured().len() * hidden * positions;
    TextStates { positions, captured: wave(captured, 0.3), last: wave(hidden * positions, 1.1) }
}

fn known(options: &EngineOptions, prompt_tokens: usize) -> Known {
    let models = engine::ModelFiles::open(options).expect("the files are there");
    let left = Left::new(&states(options), (DType::F64, &Device::Cpu)).expect("tensors");
    Known { tokens: tokens(TOKENS, models.target.vocabulary), prompt_tokens, left }
}

fn batch(known: &Known, plan: DraftPlan, loaded: &Loaded) -> TrainBatch {
    // Two windows of different lengths, so that one is padded.
    let windows = [(known, Window { start: 0, rows: 7 }), (known, Window { start: 3, rows: 5 })];
    TrainBatch::new(&windows, plan, &loaded.teacher).expect("a batch")
}

fn check(pair: &str, loss: ObjectiveLoss, feature_weight: f64) {
    let objective = TrainObjective { depth: 3, anchors: None, decay: 0.7, loss, feature_weight };
    check_with(pair, &options(pair), objective);
}

fn check_with(pair: &str, options: &EngineOptions, objective: TrainObjective) {
    let loaded = load(options, DType::F64, |_, _| {});
    let batch = batch(&known(options, 4), objective.plan(1), &loaded);
    let loss = objective.loss;
    let total = || {
        let unrolled = objective.run(&loaded.head, &batch).expect("a pass");
        unrolled.total.to_scalar::<f64>().expect("a number")
    };
    let unrolled = objective.run(&loaded.head, &batch).expect("a pass");
    assert!(unrolled.steps.iter().all(|step| step.rows > 0), "{pair}: {:?}", unrolled.steps);
    let gradients = unrolled.total.backward().expect("gradients");
    assert!(!loaded.head.trained().is_empty());
    for (name, variable) in loaded.head.trained() {
        let gradient = gradients.get(variable).unwrap_or_else(|| panic!("{pair}: {name} has no gradient"));
        let gradient = gradient.flatten_all().and_then(|all| all.to_vec1::<f64>()).expect("values");
        let values = variable.flatten_all().and_then(|all| all.to_vec1::<f64>()).expect("values");
        // The largest gradient and a few others.
        let largest = (0..gradient.len()).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs()));
        let places = largest.into_iter().chain((1..PLACES).map(|at| at * (gradient.len() - 1) / PLACES));
        for place in places {
            let at = |offset: f64| {
                let mut moved = values.clone();
                moved[place] += offset;
                let moved = Tensor::from_vec(moved, variable.shape(), &Device::Cpu).expect("a tensor");
                variable.set(&moved).expect("set");
                total()
            };
            let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            at(0.0);
            let scale = gradient[place].abs().max(difference.abs()).max(1e-4);
            assert!(
                (difference - gradient[place]).abs() / scale < 1e-4,
                "{pair} {loss:?} {name}[{place}]: {} by gradient, {difference} by difference",
                gradient[place]
            );
        }
    }
}

/// An objective of a block of four rows.
const BLOCK: TrainObjective =
    TrainObjective { depth: 3, anchors: Some(4), decay: 0.7, loss: ObjectiveLoss::Kl, feature_weight: 0.0 };

#[test]
fn eagle3() {
    check("tiny/eagle3", ObjectiveLoss::Kl, 0.0);
}

#[test]
fn eagle2_with_features() {
    check("tiny/eagle2", ObjectiveLoss::Kl, 0.5);
}

#[test]
fn a_block_with_every_loss() {
    let head = block_head(BlockKind::Dflash);
    for loss in [ObjectiveLoss::Kl, ObjectiveLoss::CrossEntropy, ObjectiveLoss::Acceptance] {
        check_with("a block", &block_options(&head), TrainObjective { loss, ..BLOCK });
    }
}

#[test]
fn a_block_with_every_kind_of_markov_head() {
    for markov in ["vanilla", "gated", "rnn"] {
        let head = block_head(BlockKind::Dspark(markov, false));
        check_with(markov, &block_options(&head), BLOCK);
    }
}

/// The confidence head learns, and nothing else learns from it.
#[test]
fn a_confidence_head_changes_no_other_gradient() {
    let [with, without] = [true, false].map(|confidence| {
        let head = block_head(BlockKind::Dspark("vanilla", confidence));
        let options = block_options(&head);
        let loaded = load(&options, DType::F64, |_, _| {});
        let unrolled = BLOCK.run(&loaded.head, &batch(&known(&options, 4), BLOCK.plan(1), &loaded)).expect("a pass");
        let gradients = unrolled.total.backward().expect("gradients");
        let of = |variable| gradients.get(variable).and_then(|all| all.flatten_all().ok()?.to_vec1::<f64>().ok());
        let of_each = loaded.head.trained().iter().map(|(name, variable)| (name.clone(), of(variable)));
        of_each.collect::<BTreeMap<String, Option<Vec<f64>>>>()
    });
    let own: Vec<_> = with.iter().filter(|(name, _)| !without.contains_key(*name)).collect();
    assert_eq!(own.len(), 2);
    for (name, gradient) in own {
        assert!(gradient.as_ref().is_some_and(|all| all.iter().any(|value| *value != 0.0)), "{name}");
    }
    assert!(without.iter().all(|(name, gradient)| gradient.is_some() && with.get(name) == Some(gradient)));
}

#[test]
fn mtp_with_every_loss() {
    check("mimo", ObjectiveLoss::Kl, 0.3);
    check("mimo", ObjectiveLoss::CrossEntropy, 0.0);
    check("mimo", ObjectiveLoss::Acceptance, 0.0);
}

/// The loss and all gradients of a pass in this type.
fn gradients(options: &EngineOptions, anchors: Option<usize>, dtype: DType) -> (f64, Vec<f64>) {
    let loaded = load(options, dtype, |_, _| {});
    let known =
        Known { left: Left::new(&states(options), (dtype, &Device::Cpu)).expect("tensors"), ..known(options, 4) };
    let objective = TrainObjective { depth: 3, anchors, decay: 0.7, loss: ObjectiveLoss::Kl, feature_weight: 0.0 };
    let batch = batch(&known, objective.plan(1), &loaded);
    let unrolled = objective.run(&loaded.head, &batch).expect("a pass");
    let gradients = unrolled.total.backward().expect("gradients");
    let wide = |tensor: &Tensor| {
        let wide = tensor.to_dtype(DType::F64).and_then(|tensor| tensor.flatten_all()?.to_vec1::<f64>());
        wide.expect("values")
    };
    let all = loaded.head.trained().values().flat_map(|variable| {
        assert_eq!(variable.dtype(), DType::F32, "values that train have 32 bits");
        wide(gradients.get(variable).expect("a gradient"))
    });
    (wide(&unrolled.total)[0], all.collect())
}

/// Results of layers in 16 bits are close to those in 32. (The CPU supports products in float16,
/// but not in bfloat16.)
#[test]
fn sixteen_bits_are_near_thirty_two() {
    let head = block_head(BlockKind::Dspark("gated", true));
    let of_block = (block_options(&head), Some(4));
    for (pair, (options, anchors)) in
        [("tiny/eagle3", (options("tiny/eagle3"), None)), ("mimo", (options("mimo"), None)), ("a block", of_block)]
    {
        let (loss, of_half) = gradients(&options, anchors, DType::F16);
        let (expected, of_single) = gradients(&options, anchors, DType::F32);
        assert!((loss - expected).abs() < 0.01 * expected, "{pair}: {loss} and {expected}");
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine =
            product(&of_half, &of_single) / (product(&of_half, &of_half) * product(&of_single, &of_single)).sqrt();
        assert!(cosine > 0.999, "{pair}: gradients point elsewhere, cosine {cosine}");
    }
}
