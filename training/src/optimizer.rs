//! AdamW with a learning-rate schedule and clipping. Candle's optimizer does not expose its
//! moments, which a checkpoint needs so that a killed run can resume exactly.

use std::collections::BTreeMap;

use candle_core::{DType, Result, Tensor, Var, backprop::GradStore};

#[cfg(feature = "cuda")]
use {crate::math::fused::Fused, kernels::launch::AdamStep};

/// AdamW, with first and second moments by variable name.
#[derive(Default)]
pub struct AdamW {
    moments: BTreeMap<String, (Tensor, Tensor)>,
    settings: AdamSettings,
    /// Number of completed steps.
    steps: usize,
}

/// Settings of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamSettings {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay of matrices; vectors (norms, biases) have none.
    pub weight_decay: f64,
    /// Maximum norm of all gradients together; larger ones are scaled down to it.
    pub clip: f64,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip: 0.5 }
    }
}

/// Schedule of the learning rate over a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSchedule {
    /// Half a cosine, down to 0.
    Cosine,
    /// Linear, down to 0.
    Linear,
    /// Constant.
    Constant,
}

impl RateSchedule {
    /// The factor of the learning rate for a step, after a linear warm-up of `warm_up` steps.
    pub fn factor(self, step: usize, warm_up: usize, steps: usize) -> f64 {
        if step < warm_up {
            return (step + 1) as f64 / warm_up as f64;
        }
        let done = (step - warm_up) as f64 / steps.saturating_sub(warm_up).max(1) as f64;
        match self {
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos()),
            Self::Linear => (1.0 - done).max(0.0),
            Self::Constant => 1.0,
        }
    }
}

impl AdamW {
    /// Without moments.
    pub fn new(settings: AdamSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The state after some steps.
    pub fn resumed(settings: AdamSettings, steps: usize, moments: BTreeMap<String, (Tensor, Tensor)>) -> Self {
        Self { moments, settings, steps }
    }

    /// The moments by variable name.
    pub fn moments(&self) -> &BTreeMap<String, (Tensor, Tensor)> {
        &self.moments
    }

    /// Updates the variables with their gradients; returns the norm of the gradients before
    /// clipping.
    ///
    /// # Errors
    /// When tensors do not fit together.
    pub fn step(&mut self, trained: &BTreeMap<String, Var>, gradients: &GradStore, learning_rate: f64) -> Result<f64> {
        let AdamSettings { beta1, beta2, epsilon, weight_decay, clip } = self.settings;
        let norm = norm(trained, gradients)?;
        if !norm.is_finite() {
            return Ok(norm);
        }
        let scale = if norm > clip { clip / norm } else { 1.0 };
        self.steps += 1;
        let (correct1, correct2) = (1.0 - beta1.powi(self.steps as i32), 1.0 - beta2.powi(self.steps as i32));
        for (name, variable) in trained {
            let Some(gradient) = gradients.get(variable) else { continue };
            let (first, second) = match self.moments.remove(name) {
                Some(moments) => moments,
                None => (variable.zeros_like()?, variable.zeros_like()?),
            };
            let decay = if variable.rank() > 1 { 1.0 - learning_rate * weight_decay } else { 1.0 };
            #[cfg(feature = "cuda")]
            if let Some(fused) = Fused::from_tensor(variable)? {
                let rate = learning_rate / correct1;
                let step =
                    AdamStep { scale, betas: (beta1, beta2), rate, root: 1.0 / correct2.sqrt(), epsilon, kept: decay };
                fused.adam(variable, (&first, &second), gradient, step)?;
                self.moments.insert(name.clone(), (first, second));
                continue;
            }
            // Each of these operations goes through memory once; factors are combined if that saves
            // one.
            let first = ((first * beta1)? + (gradient * (scale * (1.0 - beta1)))?)?.detach();
            let squares = (gradient * (scale * (1.0 - beta2).sqrt()))?.sqr()?;
            let second = ((second * beta2)? + squares)?.detach();
            let root = second.sqrt()?.affine(1.0 / correct2.sqrt(), epsilon)?;
            let update = (&first * (learning_rate / correct1))?.div(&root)?;
            let kept = if decay == 1.0 { variable.as_tensor().clone() } else { (variable.as_tensor() * decay)? };
            variable.set(&(kept - update)?.detach())?;
            self.moments.insert(name.clone(), (first, second));
        }
        Ok(norm)
    }
}

/// The norm of all gradients together, summed in the order of names.
fn norm(trained: &BTreeMap<String, Var>, gradients: &GradStore) -> Result<f64> {
    let mut squares = Vec::new();
    for variable in trained.values() {
        if let Some(gradient) = gradients.get(variable) {
            squares.push(sum_of_squares(gradient)?.to_dtype(DType::F64)?);
        }
    }
    // One transfer for all, so that the host waits for a GPU only once.
    let squares = if squares.is_empty() { Vec::new() } else { Tensor::stack(&squares, 0)?.to_vec1::<f64>()? };
    Ok(squares.iter().sum::<f64>().sqrt())
}

fn sum_of_squares(x: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Some(fused) = Fused::from_tensor(x)? {
        return fused.squares(x);
    }
    x.sqr()?.sum_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_and_falls() {
        let check = |schedule: RateSchedule, step, expected: f64| {
            let found = schedule.factor(step, 2, 10);
            assert!((found - expected).abs() < 1e-12, "{schedule:?} at {step}: {found}");
        };
        check(RateSchedule::Cosine, 0, 0.5);
        check(RateSchedule::Cosine, 1, 1.0);
        check(RateSchedule::Cosine, 2, 1.0);
        check(RateSchedule::Cosine, 6, 0.5);
        check(RateSchedule::Cosine, 10, 0.0);
        check(RateSchedule::Linear, 6, 0.5);
        check(RateSchedule::Linear, 12, 0.0);
        check(RateSchedule::Constant, 9, 1.0);
    }
}
