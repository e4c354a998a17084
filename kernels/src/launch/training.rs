//! Training steps on rows and weights: `cuda/training.cu`.
//!
//! Another library owns the tensors (candle in the crate `training`): these kernels run on its
//! stream, in order with its own.

use super::{Kernels, address, grid, int, line};
use crate::device::{Arg, DeviceError, KernelFile, Slice, Split};

const FILE: KernelFile =
    KernelFile { name: "training.cu", text: include_str!("../../cuda/training.cu"), split: Split::Cache };

const THREADS: usize = 256;

/// A step of AdamW: see [`Kernels::adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Factor on gradients.
    pub scale: f64,
    /// Decay of the first and of the second moment.
    pub betas: (f64, f64),
    /// The learning rate, divided by the bias correction of the first moment.
    pub rate: f64,
    /// Factor on the root of the second moment: its bias correction.
    pub root: f64,
    /// Added to that root.
    pub epsilon: f64,
    /// Factor on the values (weight decay).
    pub kept: f64,
}

impl Kernels {
    /// Number of partial sums of [`norm_gradient`](Self::norm_gradient) and
    /// [`squares`](Self::squares), one per block.
    pub const TRAINING_BLOCKS: usize = 264;

    /// Softmax of scores `[groups, rows, keys]`: row i sees the keys up to i, and all from `rows`
    /// on.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn causal_softmax(
        &self,
        out: Slice<'_>,
        scores: Slice<'_>,
        [groups, rows, keys]: [usize; 3],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[out, scores], groups * rows * keys)?;
        let arguments = [address(out), address(scores), int(rows), int(keys)];
        self.train("train_causal_softmax", groups * rows, &arguments)
    }

    /// The gradient of scores from weights and their gradient, `[rows, keys]` each.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn softmax_gradient(
        &self,
        out: Slice<'_>,
        weights: Slice<'_>,
        gradient: Slice<'_>,
        [rows, keys]: [usize; 2],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[out, weights, gradient], rows * keys)?;
        let arguments = [address(out), address(weights), address(gradient), int(keys)];
        self.train("train_softmax_gradient", rows, &arguments)
    }

    /// Softmax of logits `[rows, columns]`, as float, and `Σ p log p` of each row.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn softmax(
        &self,
        out: Slice<'_>,
        negative_entropy: Slice<'_>,
        logits: Slice<'_>,
        [rows, columns]: [usize; 2],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[logits], rows * columns)?;
        out.check(rows * columns * 4)?;
        negative_entropy.check(rows * 4)?;
        let arguments = [address(out), address(negative_entropy), address(logits), int(columns)];
        self.train("train_softmax", rows, &arguments)
    }

    /// `Σ p (log p − log q)` of each row, q being the softmax of its logits, and the log-sum-exp of
    /// the logits; float, as is `p` `[rows, columns]`.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn divergence(
        &self,
        (out, log_sums): (Slice<'_>, Slice<'_>),
        logits: Slice<'_>,
        (p, negative_entropy): (Slice<'_>, Slice<'_>),
        [rows, columns]: [usize; 2],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[logits], rows * columns)?;
        p.check(rows * columns * 4)?;
        for floats in [out, log_sums, negative_entropy] {
            floats.check(rows * 4)?;
        }
        let arguments =
            [address(out), address(log_sums), address(logits), address(p), address(negative_entropy), int(columns)];
        self.train("train_divergence", rows, &arguments)
    }

    /// The gradient of logits from that of [`divergence`](Self::divergence), float `[rows]`.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn divergence_gradient(
        &self,
        out: Slice<'_>,
        (logits, log_sums): (Slice<'_>, Slice<'_>),
        p: Slice<'_>,
        gradient: Slice<'_>,
        [rows, columns]: [usize; 2],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[out, logits], rows * columns)?;
        p.check(rows * columns * 4)?;
        for floats in [log_sums, gradient] {
            floats.check(rows * 4)?;
        }
        let arguments = [address(out), address(logits), address(log_sums), address(p), address(gradient), int(columns)];
        self.train("train_divergence_gradient", rows, &arguments)
    }

    /// The index of the largest value of each row, u32; ties go to the lower index.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn largest(&self, out: Slice<'_>, x: Slice<'_>, [rows, columns]: [usize; 2]) -> Result<(), DeviceError> {
        self.check_elements(&[x], rows * columns)?;
        out.check(rows * 4)?;
        self.train("train_largest", rows, &[address(out), address(x), int(columns)])
    }

    /// `y = x / sqrt(mean(x²) + epsilon) · weight` per row; the weight is float.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn norm_to_train(
        &self,
        y: Slice<'_>,
        x: Slice<'_>,
        (weight, epsilon): (Slice<'_>, f64),
        [rows, width]: [usize; 2],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[y, x], rows * width)?;
        weight.check(width * 4)?;
        let arguments = [address(y), address(x), address(weight), int(width), Arg::Float(epsilon as f32)];
        self.train("train_norm", rows, &arguments)
    }

    /// The gradients of x, and partial gradients of the weight that the caller sums: float
    /// `[TRAINING_BLOCKS, width]`.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax), and when the width exceeds shared memory.
    pub fn norm_gradient(
        &self,
        (of_x, of_weight): (Slice<'_>, Slice<'_>),
        x: Slice<'_>,
        (weight, epsilon): (Slice<'_>, f64),
        gradient: Slice<'_>,
        [rows, width]: [usize; 2],
    ) -> Result<(), DeviceError> {
        self.check_elements(&[of_x, x, gradient], rows * width)?;
        weight.check(width * 4)?;
        of_weight.check(Self::TRAINING_BLOCKS * width * 4)?;
        let (shared, room) = (width * 4, self.device.properties().shared_bytes);
        if shared > room {
            return Err(DeviceError::Shape(format!("a norm of {width} values needs {shared} bytes of {room}")));
        }
        let arguments = [
            address(of_x),
            address(of_weight),
            address(x),
            address(weight),
            address(gradient),
            int(rows),
            int(width),
            Arg::Float(epsilon as f32),
        ];
        let kernel = self.kernel(FILE, "train_norm_gradient")?;
        // SAFETY: lengths are checked above.
        unsafe { self.device.launch(&kernel, grid([Self::TRAINING_BLOCKS, 1, 1], 256, shared), &arguments) }
    }

    /// A step of AdamW over floats: updates values and both moments.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn adam(
        &self,
        value: Slice<'_>,
        (first, second): (Slice<'_>, Slice<'_>),
        gradient: Slice<'_>,
        count: usize,
        step: AdamStep,
    ) -> Result<(), DeviceError> {
        for floats in [value, first, second, gradient] {
            floats.check(count * 4)?;
        }
        let AdamStep { scale, betas: (beta1, beta2), rate, root, epsilon, kept } = step;
        let factors = [scale, beta1, beta2, rate, root, epsilon, kept].map(|factor| Arg::Float(factor as f32));
        let arguments = [address(value), address(first), address(second), address(gradient), Arg::Long(count as u64)];
        let arguments: Vec<Arg> = arguments.into_iter().chain(factors).collect();
        let blocks = count.div_ceil(4 * THREADS).clamp(1, 64 * Self::TRAINING_BLOCKS);
        self.train("train_adam", blocks, &arguments)
    }

    /// Partial sums of squares of floats that the caller sums: float `[TRAINING_BLOCKS]`.
    ///
    /// # Errors
    /// As [`causal_softmax`](Self::causal_softmax).
    pub fn squares(&self, out: Slice<'_>, x: Slice<'_>, count: usize) -> Result<(), DeviceError> {
        x.check(count * 4)?;
        out.check(Self::TRAINING_BLOCKS * 4)?;
        self.train("train_squares", Self::TRAINING_BLOCKS, &[address(out), address(x), Arg::Long(count as u64)])
    }

    fn check_elements(&self, slices: &[Slice<'_>], count: usize) -> Result<(), DeviceError> {
        slices.iter().try_for_each(|slice| slice.check(count * self.element.bytes()))
    }

    fn train(&self, name: &'static str, blocks: usize, arguments: &[Arg]) -> Result<(), DeviceError> {
        let kernel = self.kernel(FILE, name)?;
        // SAFETY: the callers, all above, have checked lengths.
        unsafe { self.device.launch(&kernel, line(blocks, 256), arguments) }
    }
}

/// The kernel file, for an element type of activations.
pub fn training_files(element: crate::device::Element) -> Vec<(KernelFile, Vec<String>)> {
    vec![(FILE, vec![element.option()])]
}
