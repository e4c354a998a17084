//! The labels of training: the target's predictions after each position.

use candle_core::{Result, Tensor};

use crate::{head::indices, math};

/// Number of rows whose logits over the whole vocabulary are in memory together.
const ROWS: usize = 512;

/// Computes labels from final states of the target.
pub struct Teacher {
    /// The target's vocabulary head, `[vocabulary, hidden]`.
    head: Tensor,
    /// Target tokens of the draft's vocabulary, if it is a subset.
    hot: Option<Tensor>,
    /// The draft's token for each target token.
    own: Option<Vec<Option<u32>>>,
    /// Whether to compute the mass, which needs a sum over the whole vocabulary.
    wants_mass: bool,
}

/// Labels of rows.
pub struct Labels {
    /// Probabilities over the draft's vocabulary, which sum to 1: `[rows, draft vocabulary]`.
    pub probabilities: Tensor,
    /// `Σ p · log p` of these: `[rows, 1]`.
    pub negative_entropy: Tensor,
    /// The target's probability of the draft's vocabulary as a whole: `[rows, 1]`. 1 if not
    /// requested.
    pub mass: Tensor,
    /// The draft's token for the target's most likely token; `None` if the draft cannot propose it.
    pub best: Vec<Option<u32>>,
}

impl Teacher {
    /// A teacher with a target's vocabulary head, for a draft that proposes these tokens of the
    /// target, or all. The mass of the draft's vocabulary is computed only if `wants_mass`.
    ///
    /// # Errors
    /// When tensors cannot be created.
    pub fn new(head: &Tensor, tokens: Option<&[u32]>, wants_mass: bool) -> Result<Self> {
        let own = tokens.map(|tokens| {
            let mut own = vec![None; head.dim(0).unwrap_or_default()];
            for (at, token) in (0..).zip(tokens) {
                if let Some(own) = own.get_mut(*token as usize) {
                    *own = Some(at);
                }
            }
            own
        });
        let hot = tokens.map(|tokens| indices(tokens, head.device())).transpose()?;
        Ok(Self { head: head.clone(), hot, own, wants_mass })
    }

    /// Labels from final states `[rows, hidden]`.
    ///
    /// # Errors
    /// When tensors do not fit together.
    pub fn labels(&self, last: &Tensor) -> Result<Labels> {
        let (rows, wide) = (last.dim(0)?, math::wide(last.dtype()));
        let (mut probabilities, mut entropies, mut masses) = (Vec::new(), Vec::new(), Vec::new());
        let mut best = Vec::with_capacity(rows);
        for first in (0..rows).step_by(ROWS) {
            let part = last.narrow(0, first, ROWS.min(rows - first))?;
            let logits = math::product(&part, &self.head, false)?;
            best.push(math::largest(&logits)?);
            let hot = self.hot.as_ref().map_or(Ok(logits.clone()), |hot| logits.index_select(hot, 1))?;
            let (p, negative_entropy) = math::distribution(&hot)?;
            let log_sum = |logits: &Tensor| math::log_sum_exp(&logits.to_dtype(wide)?);
            masses.push(match (&self.hot, self.wants_mass) {
                (Some(_), true) => (log_sum(&hot)? - log_sum(&logits)?)?.exp()?,
                _ => negative_entropy.ones_like()?,
            });
            entropies.push(negative_entropy);
            probabilities.push(p);
        }
        let of_draft = |token: u32| match &self.own {
            None => Some(token),
            Some(own) => own.get(token as usize).copied().flatten(),
        };
        let best = Tensor::cat(&best, 0)?.to_vec1::<u32>()?;
        Ok(Labels {
            probabilities: Tensor::cat(&probabilities, 0)?,
            negative_entropy: Tensor::cat(&entropies, 0)?,
            mass: Tensor::cat(&masses, 0)?,
            best: best.into_iter().map(of_draft).collect(),
        })
    }
}
