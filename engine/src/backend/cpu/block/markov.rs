//! The Markov head of DSPARK: corrects the logits of a row by the token before its position.

use kernels::reference::{Matrix, linear};

use super::super::{layer::embed, linear::CpuLinear};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{MarkovKind, MarkovSpec, MarkovTensors},
};

/// A loaded Markov head.
#[derive(Debug)]
pub struct Markov {
    /// W1, one row per token of the target.
    embedding: Matrix,
    /// W2, one row per token of the draft.
    head: Matrix,
    cell: Option<CpuLinear>,
    spec: MarkovSpec,
}

impl Markov {
    /// Loads the head.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &MarkovTensors, spec: MarkovSpec) -> Result<Self, EngineError> {
        let cell = tensors.cell.as_ref().map(|cell| CpuLinear::load(from, cell)).transpose()?;
        Ok(Self { embedding: from.matrix(&tensors.embedding)?, head: from.matrix(&tensors.head)?, cell, spec })
    }

    /// W1's rows of tokens, `[tokens, rank]`.
    pub fn rows(&self, tokens: &[u32]) -> Vec<f32> {
        embed(&self.embedding, tokens)
    }

    /// The state before the first position: empty unless the head is recurrent.
    pub fn initial(&self) -> Vec<f32> {
        if self.spec.kind == MarkovKind::Recurrent { vec![0.0; self.spec.rank] } else { Vec::new() }
    }

    /// Corrects the logits of rows, `[rows, vocabulary]`, from their hidden rows, the token before
    /// each, and the state before it. Returns the states after these tokens.
    pub fn correct(&self, logits: &mut [f32], hidden: &[f32], tokens: &[u32], states: &[f32]) -> Vec<f32> {
        let rank = self.spec.rank;
        let embedded = embed(&self.embedding, tokens);
        let width = hidden.len() / tokens.len().max(1);
        let hidden = hidden.chunks_exact(width.max(1));
        let (latent, states) = match (&self.cell, self.spec.kind) {
            (Some(cell), MarkovKind::Gated) => {
                let inputs: Vec<f32> =
                    hidden.zip(embedded.chunks_exact(rank)).flat_map(|(h, e)| h.iter().chain(e)).copied().collect();
                let gates = cell.forward(&inputs);
                (gates.iter().zip(&embedded).map(|(gate, e)| sigmoid(*gate) * e).collect(), Vec::new())
            }
            (Some(cell), MarkovKind::Recurrent) => {
                let rows = states.chunks_exact(rank).zip(embedded.chunks_exact(rank)).zip(hidden);
                let inputs: Vec<f32> = rows.flat_map(|((s, e), h)| s.iter().chain(e).chain(h)).copied().collect();
                let joint = cell.forward(&inputs);
                let (mut latent, mut next) = (Vec::new(), Vec::new());
                for (joint, before) in joint.chunks_exact(3 * rank).zip(states.chunks_exact(rank)) {
                    for (at, before) in before.iter().enumerate() {
                        let gate = sigmoid(joint[at]);
                        next.push(gate * before + (1.0 - gate) * joint[rank + at].tanh());
                    }
                    latent.extend(joint[2 * rank..].iter().map(|output| output.tanh()));
                }
                (latent, next)
            }
            _ => (embedded, Vec::new()),
        };
        let bias = linear(&latent, &self.head, None);
        logits.iter_mut().zip(&bias).for_each(|(logit, bias)| *logit += bias);
        states
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head of rank 1 over hidden rows of width 1, whose cell has no bias.
    fn head(kind: MarkovKind, cell: Option<(usize, usize, &[f32])>) -> Markov {
        Markov {
            embedding: Matrix::new(2, 1, vec![0.5, -1.0]),
            head: Matrix::new(1, 1, vec![2.0]),
            cell: cell.map(|(outputs, inputs, weights)| {
                CpuLinear::from_weight(Matrix::new(outputs, inputs, weights.to_vec()))
            }),
            spec: MarkovSpec { rank: 1, kind },
        }
    }

    #[test]
    fn each_kind_corrects_as_published() {
        let check = |markov: &Markov, states: &[f32], expected: f32, next: &[f32]| {
            let mut logits = [3.0];
            let found = markov.correct(&mut logits, &[2.0], &[0], states);
            let close = |one: f32, other: f32| (one - other).abs() < 1e-5;
            assert!(close(logits[0], expected), "{logits:?}, expected {expected}");
            assert!(found.len() == next.len() && found.iter().zip(next).all(|(a, b)| close(*a, *b)), "{found:?}");
        };
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        check(&head(MarkovKind::Vanilla, None), &[], 3.0 + 2.0 * 0.5, &[]);
        // The gate reads the hidden row 2, then the token's row 0.5.
        let gated = head(MarkovKind::Gated, Some((1, 2, &[1.0, 0.5])));
        check(&gated, &[], 3.0 + 2.0 * sigmoid(2.25) * 0.5, &[]);
        // The cell reads the state 0.2, the token's row 0.5, then the hidden row 2.
        let recurrent = head(MarkovKind::Recurrent, Some((3, 3, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])));
        let gate = sigmoid(0.2);
        let next = gate * 0.2 + (1.0 - gate) * 0.5_f32.tanh();
        check(&recurrent, &[0.2], 3.0 + 2.0 * 2.0_f32.tanh(), &[next]);
        assert_eq!((recurrent.initial(), gated.initial()), (vec![0.0], vec![]));
    }
}
