//! Times training steps of a head with a published shape and random values, on random texts.

use std::{cell::RefCell, time::Instant};

use candle_core::{DType, Result, Tensor};
use engine::spec::{self, DraftSpec, Role, TargetSpec, TensorSpec};

use crate::{
    batch::{Known, Left, TrainBatch, Window},
    compute::Compute,
    cost::{self, TrainedRows},
    error::TrainingError,
    head::{Head, SharedWeights, trained_tensors},
    objective::{ObjectiveLoss, TrainObjective},
    optimizer::{AdamSettings, AdamW},
    statistics::Random,
    teacher::Teacher,
};

/// What to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedSteps<'a> {
    /// The name of a published shape, as in `--model-shape`.
    pub shape: &'a str,
    /// Number of the target's layers, on which only the draft's shape depends; `None` for all.
    pub layers: Option<usize>,
    /// Number of steps that the draft runs on its own output.
    pub unroll: usize,
    /// Number of texts per step.
    pub batch_size: usize,
    /// Number of rows per text.
    pub window: usize,
    /// Number of timed steps, after the warm-up.
    pub steps: usize,
    /// Number of warm-up steps.
    pub warm_up: usize,
}

/// The measured speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Number of trained values.
    pub parameters: u64,
    /// Median time of a step in seconds.
    pub step_s: f64,
    /// Mean times of its parts in seconds: labels and batch, forward, backward, optimiser.
    pub parts_s: [f64; 4],
    /// Rows of texts per second.
    pub tokens_per_s: f64,
    /// Floating-point operations (multiplications and additions) per row, computed from the
    /// matrices.
    pub flops_of_a_row: f64,
    /// Floating-point operations per second of one plain product by the library, with the size of
    /// the head's largest layer.
    pub product_flops: f64,
    /// Used device memory in bytes before and after, including memory that steps have freed but the
    /// library keeps.
    pub memory: Option<(usize, usize)>,
    /// The last loss, which is finite if all went well.
    pub loss: f32,
}

/// Times steps.
///
/// # Errors
/// When the shape is unknown or cannot be trained, or memory is insufficient.
pub fn time(timed: &TimedSteps<'_>, compute: &Compute) -> std::result::Result<Speed, TrainingError> {
    let before = compute.memory();
    let published = spec::published(timed.shape)?;
    let target = published.target(timed.layers)?;
    let draft = DraftSpec::Recurrent(published.draft(&target));
    let shared = SharedWeights { embedding: matrix(&target, compute)?, head: matrix(&target, compute)? };
    let random = RefCell::new(Random::new(7));
    let values = |tensor: &TensorSpec| {
        let mut random = random.borrow_mut();
        Ok::<Vec<f32>, TrainingError>((0..tensor.values()).map(|_| value(tensor, &mut random)).collect())
    };
    let head = Head::new(&draft, &values, &shared, compute.tensors())?;
    let teacher = Teacher::new(&shared.head, draft.tokens(), false)?;
    let texts = texts(timed, &target, &draft, compute)?;
    let objective =
        TrainObjective { depth: timed.unroll, anchors: None, decay: 0.8, loss: ObjectiveLoss::Kl, feature_weight: 0.0 };
    let mut optimizer = AdamW::new(AdamSettings::default());
    let mut loss = f32::NAN;
    let mut seconds = Vec::new();
    let mut parts = [0.0; 4];
    for step in 0..timed.warm_up + timed.steps {
        let begin = Instant::now();
        let windows: Vec<_> = texts.iter().map(|text| (text, Window { start: 0, rows: timed.window })).collect();
        let batch = TrainBatch::new(&windows, objective.plan(0), &teacher)?;
        // Work on a GPU is asynchronous: without waiting, all time would be counted in the last
        // part.
        wait(&batch.of_target)?;
        let labelled = Instant::now();
        let unrolled = objective.run(&head, &batch)?;
        let forward = Instant::now();
        let gradients = unrolled.total.backward()?;
        wait(&unrolled.total)?;
        let backward = Instant::now();
        optimizer.step(head.trained(), &gradients, 1e-4)?;
        loss = unrolled.total.to_scalar::<f32>()?;
        let end = Instant::now();
        // The first steps compile kernels and grow the pool of memory.
        if step >= timed.warm_up {
            seconds.push((end - begin).as_secs_f64());
            let stretches = [labelled - begin, forward - labelled, backward - forward, end - backward];
            parts.iter_mut().zip(stretches).for_each(|(sum, stretch)| *sum += stretch.as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    let step_s = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN);
    let after = compute.memory();
    Ok(Speed {
        parameters: trained_tensors(&draft, target.vocabulary).iter().map(TensorSpec::values).sum(),
        step_s,
        parts_s: parts.map(|part| part / seconds.len().max(1) as f64),
        tokens_per_s: (timed.batch_size * timed.window) as f64 / step_s,
        flops_of_a_row: cost::flops(&draft, &target, TrainedRows { rows: 1, anchors: 1, depth: timed.unroll }),
        product_flops: product(timed, &draft, compute)?,
        memory: before.zip(after).map(|((before, _), (after, _))| (before, after)),
        loss,
    })
}

/// A random embedding or vocabulary head.
fn matrix(target: &TargetSpec, compute: &Compute) -> Result<Tensor> {
    Tensor::randn(0_f32, 0.02, (target.vocabulary, target.hidden), &compute.device)?.to_dtype(compute.dtype)
}

/// Norms are 1; matrices have the standard deviation of published initial values.
fn value(tensor: &TensorSpec, random: &mut Random) -> f32 {
    match tensor.role {
        Role::Norm => 1.0,
        // Uniform numbers with that deviation: normal ones would take the host longer than the
        // steps.
        _ => ((random.unit() - 0.5) * 0.04 * 3_f64.sqrt()) as f32,
    }
}

/// Random texts with random states.
fn texts(timed: &TimedSteps<'_>, target: &TargetSpec, draft: &DraftSpec, compute: &Compute) -> Result<Vec<Known>> {
    let positions = timed.window + 1;
    let states = |width: usize| Tensor::randn(0_f32, 1.0, (positions, width), &compute.device)?.to_dtype(compute.dtype);
    let mut random = Random::new(11);
    let text = |_| {
        let last = states(target.hidden)?;
        let captured = draft.captured().len() * target.hidden;
        let seen = if captured == 0 { last.clone() } else { states(captured)? };
        let tokens = (0..=positions).map(|_| random.below(target.vocabulary) as u32).collect();
        Ok(Known { tokens, prompt_tokens: 1, left: Left::from_tensors(seen, last)? })
    };
    (0..timed.batch_size).map(text).collect()
}

/// Speed of one product by the library: all rows with the draft's widest layer.
fn product(timed: &TimedSteps<'_>, draft: &DraftSpec, compute: &Compute) -> Result<f64> {
    const TIMES: usize = 20;
    let (rows, hidden) = (timed.batch_size * timed.window, draft.hidden());
    let wide = draft.layers().iter().map(|layer| layer.ffn.widest()).max().unwrap_or_default();
    let random = |rows, columns| Tensor::randn(0_f32, 1.0, (rows, columns), &compute.device)?.to_dtype(compute.dtype);
    let (x, weight) = (random(rows, hidden)?, random(wide, hidden)?);
    let mut last = x.matmul(&weight.t()?)?;
    wait(&last)?;
    let begin = Instant::now();
    for _ in 0..TIMES {
        last = x.matmul(&weight.t()?)?;
    }
    wait(&last)?;
    Ok((2 * TIMES * rows * hidden * wide) as f64 / begin.elapsed().as_secs_f64())
}

/// Waits until a tensor has been computed.
fn wait(tensor: &Tensor) -> Result<()> {
    tensor.flatten_all()?.narrow(0, 0, 1)?.to_dtype(DType::F32)?.to_vec1::<f32>().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_is_not_known_is_refused() {
        let timed =
            TimedSteps { shape: "llama-9b", layers: None, unroll: 3, batch_size: 1, window: 8, steps: 1, warm_up: 0 };
        let error = time(&timed, &Compute::processor()).expect_err("no such shape");
        assert!(error.to_string().contains("llama-3.1-8b"), "{error}");
    }
}
