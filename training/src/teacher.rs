//! What the target says after each position: the labels of training.

use candle_core::{D, Device, Result, Tensor};
use engine::spec::DraftSpec;

use crate::{head::indices, math};

/// Rows whose logits over the whole vocabulary are in memory together.
const ROWS: usize = 512;

/// Tells labels from final states of the target.
pub struct Teacher {
    /// The target's vocabulary head, `[vocabulary, hidden]`.
    head: Tensor,
    /// Target tokens of the draft's, where it proposes some of them only.
    hot: Option<Tensor>,
    /// The draft's token of each of the target's.
    own: Option<Vec<Option<u32>>>,
}

/// Labels of rows.
pub struct Labels {
    /// Probabilities over the draft's vocabulary, which sum to 1: `[rows, draft vocabulary]`.
    pub probabilities: Tensor,
    /// What the target gives to the draft's vocabulary as a whole: `[rows, 1]`.
    pub mass: Tensor,
    /// The draft's token for the target's likeliest; `None` where the draft cannot propose it.
    pub best: Vec<Option<u32>>,
}

impl Teacher {
    /// Of a target's vocabulary head, for a draft.
    ///
    /// # Errors
    /// When tensors cannot be made.
    pub fn new(head: &Tensor, draft: &DraftSpec, device: &Device) -> Result<Self> {
        let own = draft.tokens.as_ref().map(|tokens| {
            let mut own = vec![None; head.dim(0).unwrap_or_default()];
            for (at, token) in (0..).zip(tokens) {
                if let Some(own) = own.get_mut(*token as usize) {
                    *own = Some(at);
                }
            }
            own
        });
        let hot = draft.tokens.as_ref().map(|tokens| indices(tokens, device)).transpose()?;
        Ok(Self { head: head.clone(), hot, own })
    }

    /// Labels from final states `[rows, hidden]`.
    ///
    /// # Errors
    /// When tensors do not fit.
    pub fn labels(&self, last: &Tensor) -> Result<Labels> {
        let rows = last.dim(0)?;
        let (mut probabilities, mut masses, mut best) = (Vec::new(), Vec::new(), Vec::with_capacity(rows));
        for first in (0..rows).step_by(ROWS) {
            let logits = last.narrow(0, first, ROWS.min(rows - first))?.matmul(&self.head.t()?)?;
            let likeliest = logits.argmax(D::Minus1)?.to_vec1::<u32>()?;
            best.extend(likeliest.into_iter().map(|token| match &self.own {
                None => Some(token),
                Some(own) => own.get(token as usize).copied().flatten(),
            }));
            let all = math::softmax(&logits)?;
            let hot = self.hot.as_ref().map_or(Ok(all.clone()), |hot| all.index_select(hot, 1))?;
            let mass = hot.sum_keepdim(D::Minus1)?;
            // A draft none of whose tokens the target would ever say learns nothing from the row.
            probabilities.push(hot.broadcast_div(&mass.clamp(1e-20, 1.0)?)?);
            masses.push(mass);
        }
        Ok(Labels { probabilities: Tensor::cat(&probabilities, 0)?, mass: Tensor::cat(&masses, 0)?, best })
    }
}
