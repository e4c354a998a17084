//! Compares the demo's EAGLE-3 head with the PyTorch script that trained it: the same loss and
//! gradients on one batch (`training/scripts/eagle3_reference.py`).

use std::{collections::BTreeMap, fs};

use candle_core::{DType, Device};
use engine::TextStates;
use serde::Deserialize;
use training::{
    batch::{Known, Left, TrainBatch, Window},
    objective::{ObjectiveLoss, TrainObjective},
};

use crate::common::{load, options, repository};

#[derive(Deserialize)]
struct Reference {
    rows: usize,
    unroll: usize,
    decay: f64,
    total: f64,
    losses: Vec<f64>,
    agreed: Vec<usize>,
    norms: BTreeMap<String, f64>,
}

#[test]
fn eagle3_has_the_loss_and_gradients_of_pytorch() {
    let folder = repository("tests/data/training");
    let text = fs::read_to_string(folder.join("eagle3.json")).expect("the reference");
    let reference: Reference = serde_json::from_str(&text).expect("a reference");
    let tensors = candle_core::safetensors::load(folder.join("eagle3.safetensors"), &Device::Cpu).expect("tensors");
    let rows = |name: &str, text: usize| {
        let row = tensors[name].get(text).and_then(|row| row.flatten_all()).expect("a row");
        row.to_vec1::<f32>().expect("values")
    };
    let texts: Vec<Known> = (0..2)
        .map(|text| {
            let tokens = tensors["tokens"].get(text).and_then(|row| row.to_dtype(DType::U32)).expect("a row");
            let tokens = tokens.to_vec1::<u32>().expect("tokens");
            // The reference also has a state after the last token, which is not read.
            let states =
                TextStates { positions: tokens.len(), captured: rows("captured", text), last: rows("final", text) };
            let left = Left::new(&states, (DType::F32, &Device::Cpu)).expect("tensors");
            Known { tokens, prompt_tokens: 1, left }
        })
        .collect();
    let loaded = load(&options("tiny/eagle3"), DType::F32, |_, _| {});
    let windows: Vec<_> = texts.iter().map(|known| (known, Window { start: 0, rows: reference.rows })).collect();
    let objective = TrainObjective {
        depth: reference.unroll,
        anchors: None,
        decay: reference.decay,
        loss: ObjectiveLoss::Kl,
        feature_weight: 0.0,
    };
    let batch = TrainBatch::new(&windows, objective.plan(0), &loaded.teacher).expect("a batch");
    let unrolled = objective.run(&loaded.head, &batch).expect("a pass");

    let near = |found: f64, expected: f64, what: &str| {
        assert!((found - expected).abs() <= 1e-4 * expected.abs(), "{what}: {found}, PyTorch {expected}");
    };
    for (step, (found, expected)) in unrolled.steps.iter().zip(&reference.losses).enumerate() {
        near(found.loss, *expected, &format!("loss of step {step}"));
        assert_eq!(found.agreed, reference.agreed[step], "agreement of step {step}");
    }
    near(f64::from(unrolled.total.to_scalar::<f32>().expect("a number")), reference.total, "loss");
    let gradients = unrolled.total.backward().expect("gradients");
    assert_eq!(reference.norms.len(), loaded.head.trained().len());
    for (name, variable) in loaded.head.trained() {
        let gradient = gradients.get(variable).expect("a gradient").flatten_all().expect("flat");
        let gradient: Vec<f64> = gradient.to_dtype(DType::F64).and_then(|gradient| gradient.to_vec1()).expect("values");
        let norm = gradient.iter().map(|value| value * value).sum::<f64>().sqrt();
        near(norm, reference.norms[name], &format!("norm of the gradient of {name}"));
        let samples: Vec<f32> = tensors[&format!("gradient.{name}")].to_vec1().expect("samples");
        let (mut apart, mut size) = (0.0, 0.0);
        for (at, sample) in samples.iter().enumerate() {
            let place = at * (gradient.len() - 1) / (samples.len() - 1);
            apart += (gradient[place] - f64::from(*sample)).powi(2);
            size += f64::from(*sample).powi(2);
        }
        let (apart, size): (f64, f64) = (apart.sqrt(), size.sqrt());
        assert!(apart <= 1e-4 * size, "{name}: samples differ by {apart} of {size}");
    }
}
