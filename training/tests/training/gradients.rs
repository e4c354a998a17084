//! Gradients of every kind of head and loss against finite differences, in float64.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use engine::{EngineOptions, TextStates};
use training::{
    batch::{Batch, Known, Window},
    objective::{Loss, Objective},
};

use crate::common::{Loaded, load, options, tokens};

/// Places of each tensor that are compared.
const PLACES: usize = 3;
/// A step of the difference, of each side.
const STEP: f64 = 1e-5;

/// States that look like a target's.
fn known(options: &EngineOptions, prompt_tokens: usize) -> Known {
    let models = engine::ModelFiles::open(options).expect("the files are there");
    let (spec, hidden) = (models.draft.expect("a draft"), models.target.hidden);
    let tokens = tokens(11, models.target.vocabulary);
    let positions = tokens.len() - 1;
    let wave = |count: usize, phase: f64| -> Vec<f32> {
        (0..count).map(|at| ((at as f64 * 0.7 + phase).sin() * 1.3 + (at as f64 * 0.13).cos()) as f32).collect()
    };
    let captured = spec.captured().len() * hidden * positions;
    let states = TextStates { positions, captured: wave(captured, 0.3), last: wave(hidden * positions, 1.1) };
    Known { tokens, prompt_tokens, states: Arc::new(states) }
}

fn batch(known: &Known, depth: usize, loaded: &Loaded) -> Batch {
    // Two windows of different lengths: one is filled up.
    let windows = [(known, Window { start: 0, rows: 7 }), (known, Window { start: 3, rows: 5 })];
    Batch::new(&windows, depth, &loaded.teacher, (DType::F64, &Device::Cpu)).expect("a batch")
}

fn check(pair: &str, loss: Loss, feature_weight: f64) {
    let options = options(pair);
    let loaded = load(&options, DType::F64, |_, _| {});
    let objective = Objective { depth: 3, decay: 0.7, loss, feature_weight };
    let batch = batch(&known(&options, 4), objective.depth, &loaded);
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

#[test]
fn eagle3() {
    check("tiny/eagle3", Loss::Kl, 0.0);
}

#[test]
fn eagle2_with_features() {
    check("tiny/eagle2", Loss::Kl, 0.5);
}

#[test]
fn mtp_with_every_loss() {
    check("mimo", Loss::Kl, 0.3);
    check("mimo", Loss::CrossEntropy, 0.0);
    check("mimo", Loss::Acceptance, 0.0);
}
