//! Training steps on rows and weights, compared with the formulas in 64 bits.

use super::{Numbers, compare, text, tolerance, values};
use crate::{
    device::{Buffer, Device, Element},
    launch::{AdamStep, Kernels},
};

/// Rows of scores and logits, shorter and longer than a block, with and without causal masks.
pub fn check_training_softmax(device: &Device, element: Element) -> Result<(), String> {
    let fixture = TrainingFixture::new(device, element, 71);
    for (groups, rows, later) in [(2, 5, 0), (3, 7, 2), (1, 300, 1)] {
        fixture.causal_softmax(groups, rows, rows + later)?;
    }
    for (rows, columns) in [(3, 40), (4, 700)] {
        fixture.divergence(rows, columns)?;
        fixture.softmax(rows, columns)?;
    }
    fixture.largest()
}

/// Norms and their gradients, over fewer and over more rows than blocks.
pub fn check_training_norm(device: &Device, element: Element) -> Result<(), String> {
    let fixture = TrainingFixture::new(device, element, 72);
    for (rows, width) in [(3, 40), (Kernels::TRAINING_BLOCKS + 5, 24)] {
        fixture.norm(rows, width)?;
    }
    Ok(())
}

/// Optimiser steps over weights whose number is not a multiple of the block, and their sum of
/// squares.
pub fn check_training_steps(device: &Device) -> Result<(), String> {
    let fixture = TrainingFixture::new(device, Element::F32, 73);
    let count = 3 * 1024 + 7;
    let mut numbers = Numbers::new(74);
    let mut floats = || numbers.floats(count, Element::F32);
    let (value, first, gradient) = (floats(), floats(), floats());
    // Means of squares, whose root is taken.
    let second: Vec<f32> = floats().iter().map(|x| x * x).collect();
    let [on_value, on_first, on_second, on_gradient] =
        [&value, &first, &second, &gradient].map(|floats| fixture.upload_floats(floats));
    let (on_value, on_first, on_second, on_gradient) = (on_value?, on_first?, on_second?, on_gradient?);
    let step = AdamStep { scale: 0.5, betas: (0.9, 0.95), rate: 0.01, root: 1.3, epsilon: 1e-4, kept: 0.99 };
    let moments = (on_first.slice(), on_second.slice());
    fixture.kernels.adam(on_value.slice(), moments, on_gradient.slice(), count, step).map_err(text)?;
    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    for at in 0..count {
        let g = f64::from(gradient[at]) * step.scale;
        let m = f64::from(first[at]) * 0.9 + g * 0.1;
        let v = f64::from(second[at]) * 0.95 + g * g * 0.05;
        let new = f64::from(value[at]) * step.kept - step.rate * m / (v.sqrt() * step.root + step.epsilon);
        [new, m, v].into_iter().zip(&mut expected).for_each(|(number, all)| all.push(number as f32));
    }
    for ((what, found), expected) in
        [("values", &on_value), ("first moments", &on_first), ("second moments", &on_second)].into_iter().zip(&expected)
    {
        compare(&format!("adam, {what}"), &fixture.floats(found)?, expected, 1e-4)?;
    }
    let parts = fixture.zeros(Kernels::TRAINING_BLOCKS)?;
    fixture.kernels.squares(parts.slice(), on_gradient.slice(), count).map_err(text)?;
    let found: f32 = fixture.floats(&parts)?.iter().sum();
    let expected: f64 = gradient.iter().map(|x| f64::from(*x).powi(2)).sum();
    compare("squares", &[found / expected as f32], &[1.0], 1e-4)
}

struct TrainingFixture {
    device: Device,
    element: Element,
    kernels: Kernels,
    seed: u64,
}

impl TrainingFixture {
    fn new(device: &Device, element: Element, seed: u64) -> Self {
        Self { device: device.clone(), element, kernels: Kernels::new(device.clone(), element), seed }
    }

    /// Random numbers of some magnitude, on the host and on the device.
    fn random(&self, count: usize, size: f32, seed: u64) -> Result<(Vec<f32>, Buffer), String> {
        let mut numbers = Numbers::new(self.seed + seed);
        let values: Vec<f32> = (0..count).map(|_| numbers.float() * size).collect();
        let encoded = self.element.encode(&values);
        Ok((self.element.decode(&encoded), self.device.upload(&encoded).map_err(text)?))
    }

    fn upload_floats(&self, values: &[f32]) -> Result<Buffer, String> {
        self.device.upload(values).map_err(text)
    }

    fn zeros(&self, words: usize) -> Result<Buffer, String> {
        self.device.zeros(words * 4).map_err(text)
    }

    fn space(&self, elements: usize) -> Result<Buffer, String> {
        self.device.zeros(elements * self.element.bytes()).map_err(text)
    }

    fn floats(&self, buffer: &Buffer) -> Result<Vec<f32>, String> {
        values(&self.device, buffer.slice(), Element::F32)
    }

    fn compare(&self, what: &str, found: &Buffer, expected: &[f64]) -> Result<(), String> {
        let expected: Vec<f32> = expected.iter().map(|number| *number as f32).collect();
        compare(what, &values(&self.device, found.slice(), self.element)?, &expected, tolerance(self.element))
    }

    fn causal_softmax(&self, groups: usize, rows: usize, keys: usize) -> Result<(), String> {
        let count = groups * rows * keys;
        let ((scores, on_scores), (gradient, on_gradient)) = (self.random(count, 4.0, 1)?, self.random(count, 1.0, 2)?);
        let (weights, of_scores) = (self.space(count)?, self.space(count)?);
        self.kernels.causal_softmax(weights.slice(), on_scores.slice(), [groups, rows, keys]).map_err(text)?;
        let expected: Vec<f64> = scores
            .chunks_exact(keys)
            .enumerate()
            .flat_map(|(at, row)| softmax(row, |key| key <= at % rows || key >= rows))
            .collect();
        let what = format!("causal softmax of {groups} x {rows} rows over {keys} keys");
        self.compare(&what, &weights, &expected)?;
        // The gradient is that of the rounded weights, which its kernel reads.
        let rounded = values(&self.device, weights.slice(), self.element)?;
        let arguments = (weights.slice(), on_gradient.slice());
        self.kernels
            .softmax_gradient(of_scores.slice(), arguments.0, arguments.1, [groups * rows, keys])
            .map_err(text)?;
        let pairs = rounded.chunks_exact(keys).zip(gradient.chunks_exact(keys));
        let expected: Vec<f64> = pairs
            .flat_map(|(weights, gradient)| {
                let sum = dot(weights, gradient);
                weights.iter().zip(gradient).map(move |(w, g)| f64::from(*w) * (f64::from(*g) - sum))
            })
            .collect();
        self.compare(&format!("{what}, its gradient"), &of_scores, &expected)
    }

    fn softmax(&self, rows: usize, columns: usize) -> Result<(), String> {
        let (logits, on_logits) = self.random(rows * columns, 6.0, 3)?;
        let (p, entropies) = (self.zeros(rows * columns)?, self.zeros(rows)?);
        self.kernels.softmax(p.slice(), entropies.slice(), on_logits.slice(), [rows, columns]).map_err(text)?;
        let all: Vec<Vec<f64>> = logits.chunks_exact(columns).map(|row| softmax(row, |_| true)).collect();
        let expected: Vec<f32> = all.iter().flatten().map(|p| *p as f32).collect();
        compare("softmax", &self.floats(&p)?, &expected, 1e-4)?;
        let expected: Vec<f32> = all.iter().map(|row| row.iter().map(|p| p * p.ln()).sum::<f64>() as f32).collect();
        compare("softmax, Σ p log p", &self.floats(&entropies)?, &expected, 1e-3)
    }

    fn divergence(&self, rows: usize, columns: usize) -> Result<(), String> {
        let (logits, on_logits) = self.random(rows * columns, 5.0, 4)?;
        let mut numbers = Numbers::new(self.seed);
        let of_target: Vec<f32> = (0..rows * columns).map(|_| numbers.float() * 4.0).collect();
        let p: Vec<Vec<f64>> = of_target.chunks_exact(columns).map(|row| softmax(row, |_| true)).collect();
        let q: Vec<Vec<f64>> = logits.chunks_exact(columns).map(|row| softmax(row, |_| true)).collect();
        let negative: Vec<f32> = p.iter().map(|row| row.iter().map(|p| p * p.ln()).sum::<f64>() as f32).collect();
        let gradient = numbers.floats(rows, Element::F32);
        let floats: Vec<f32> = p.iter().flatten().map(|p| *p as f32).collect();
        let (on_p, on_negative, on_gradient) =
            (self.upload_floats(&floats)?, self.upload_floats(&negative)?, self.upload_floats(&gradient)?);
        let (out, log_sums, of_logits) = (self.zeros(rows)?, self.zeros(rows)?, self.space(rows * columns)?);
        let labels = (on_p.slice(), on_negative.slice());
        self.kernels
            .divergence((out.slice(), log_sums.slice()), on_logits.slice(), labels, [rows, columns])
            .map_err(text)?;
        let of_row =
            |(p, q): (&Vec<f64>, &Vec<f64>)| p.iter().zip(q).map(|(p, q)| p * (p.ln() - q.ln())).sum::<f64>() as f32;
        let expected: Vec<f32> = p.iter().zip(&q).map(of_row).collect();
        compare("divergence", &self.floats(&out)?, &expected, 1e-3)?;
        let arguments = (on_logits.slice(), log_sums.slice());
        self.kernels
            .divergence_gradient(of_logits.slice(), arguments, on_p.slice(), on_gradient.slice(), [rows, columns])
            .map_err(text)?;
        let expected: Vec<f64> = (0..rows)
            .flat_map(|row| {
                let factor = f64::from(gradient[row]);
                p[row].iter().zip(&q[row]).map(move |(p, q)| (q - p) * factor)
            })
            .collect();
        self.compare("divergence, its gradient", &of_logits, &expected)
    }

    fn largest(&self) -> Result<(), String> {
        let (rows, columns) = (4, 600);
        let (mut x, _) = self.random(rows * columns, 1.0, 5)?;
        // Ties, of which the first counts, within one thread's share and across threads.
        for (row, places) in [[7, 263], [599, 300], [0, 1], [255, 256]].into_iter().enumerate() {
            places.into_iter().for_each(|place| x[row * columns + place] = 2.0);
        }
        let (on_device, out) = (self.device.upload(&self.element.encode(&x)).map_err(text)?, self.zeros(rows)?);
        self.kernels.largest(out.slice(), on_device.slice(), [rows, columns]).map_err(text)?;
        let found: Vec<u32> = self.device.download(out.slice()).map_err(text)?;
        (found == [7, 300, 0, 255]).then_some(()).ok_or_else(|| format!("the largest are at {found:?}"))
    }

    fn norm(&self, rows: usize, width: usize) -> Result<(), String> {
        const EPSILON: f64 = 1e-5;
        let ((x, on_x), (gradient, on_gradient)) =
            (self.random(rows * width, 2.0, 6)?, self.random(rows * width, 1.0, 7)?);
        let weight = self.element.decode(&self.element.encode(&Numbers::new(8).floats(width, Element::F32)));
        let on_weight = self.upload_floats(&weight)?;
        let (y, of_x) = (self.space(rows * width)?, self.space(rows * width)?);
        let of_weight = self.zeros(Kernels::TRAINING_BLOCKS * width)?;
        let of = (on_weight.slice(), EPSILON);
        self.kernels.norm_to_train(y.slice(), on_x.slice(), of, [rows, width]).map_err(text)?;
        let to = (of_x.slice(), of_weight.slice());
        self.kernels.norm_gradient(to, on_x.slice(), of, on_gradient.slice(), [rows, width]).map_err(text)?;
        let (mut expected_y, mut expected_x, mut expected_weight) = (Vec::new(), Vec::new(), vec![0.0; width]);
        for (x, gradient) in x.chunks_exact(width).zip(gradient.chunks_exact(width)) {
            let scale = 1.0 / (dot(x, x) / width as f64 + EPSILON).sqrt();
            let normed: Vec<f64> = x.iter().map(|x| f64::from(*x) * scale).collect();
            let g: Vec<f64> = gradient.iter().zip(&weight).map(|(g, w)| f64::from(*g) * f64::from(*w)).collect();
            let along = g.iter().zip(&normed).map(|(g, n)| g * n).sum::<f64>() / width as f64;
            expected_y.extend(normed.iter().zip(&weight).map(|(n, w)| n * f64::from(*w)));
            expected_x.extend(g.iter().zip(&normed).map(|(g, n)| (g - n * along) * scale));
            let sums = expected_weight.iter_mut().zip(gradient.iter().zip(&normed));
            sums.for_each(|(sum, (g, n))| *sum += f64::from(*g) * n);
        }
        let what = format!("norm of {rows} rows of {width}");
        self.compare(&what, &y, &expected_y)?;
        self.compare(&format!("{what}, gradient"), &of_x, &expected_x)?;
        let parts = self.floats(&of_weight)?;
        let found: Vec<f32> =
            (0..width).map(|at| parts.iter().skip(at).step_by(width).sum::<f32>() / rows as f32).collect();
        let expected: Vec<f32> = expected_weight.iter().map(|sum| (sum / rows as f64) as f32).collect();
        compare(&format!("{what}, gradient of the weight"), &found, &expected, 1e-3)
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Softmax over the places that count.
fn softmax(row: &[f32], counts: impl Fn(usize) -> bool) -> Vec<f64> {
    let weights: Vec<f64> =
        row.iter().enumerate().map(|(at, x)| if counts(at) { f64::from(*x).exp() } else { 0.0 }).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}
