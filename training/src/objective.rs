//! The training objective: the loss of the drafts of all depths.
//!
//! A round runs a recurrent draft on its own output. So does training: step 0 reads the target's
//! features, each later step the state of the previous one, with the tokens of the text (EAGLE-3's
//! training-time test, arXiv 2503.01840). A block head drafts all depths at once, as in a round,
//! from anchors drawn at random (DFlash, arXiv 2602.06036).
//!
//! The confidence head of DSPARK learns the probability that its draft is accepted, by
//! cross-entropy.
//!
//! Depth k has the weight `decay^k`. The divisor is the number of anchors, including those without
//! a label, as in the published trainers: a mean over labelled tokens alone lowers accept lengths.

use candle_core::{D, DType, Result, Tensor};

use crate::{
    batch::{DraftPlan, StepLabels, TrainBatch},
    head::{Head, HeadStep},
    math,
};

/// The loss of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveLoss {
    /// Kullback-Leibler divergence from the target's distribution over the draft's vocabulary.
    Kl,
    /// Cross-entropy with the target's most likely token.
    CrossEntropy,
    /// `−log Σ min(p, q)`, the probability that speculative sampling accepts, with p over the whole
    /// vocabulary (arXiv
    /// 2602.23881).
    Acceptance,
}

/// The settings of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainObjective {
    /// Number of drafts after each anchor: the steps of a recurrent head, or the rows of a block
    /// that draft.
    pub depth: usize,
    /// Maximum number of anchors of a window; `None` for every row, as recurrent heads need.
    pub anchors: Option<usize>,
    /// Factor of the weight from one depth to the next.
    pub decay: f64,
    /// The loss of tokens.
    pub loss: ObjectiveLoss,
    /// Weight of the distance (smooth L1) between the draft's state and the target's final state,
    /// for drafts that read the latter: EAGLE-1/2.
    pub feature_weight: f64,
}

/// The outcome of a pass.
pub struct Unrolled {
    /// The loss to minimise; a scalar with gradients.
    pub total: Tensor,
    /// For each depth: token loss over drafts that count, their number, and the number of drafts in
    /// which draft and target agree on the most likely token.
    pub steps: Vec<StepFigures>,
}

/// Sums over the drafts of a depth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Token loss, in nats.
    pub loss: f64,
    /// Number of drafts in which draft and target agree on the most likely token.
    pub agreed: usize,
    /// Number of drafts that count.
    pub rows: usize,
}

impl TrainObjective {
    /// Where the drafts of a batch start, drawn with this seed.
    pub fn plan(&self, seed: u64) -> DraftPlan {
        DraftPlan { depth: self.depth, anchors: self.anchors.map(|most| (most, seed)) }
    }

    /// Runs a head over a batch.
    ///
    /// # Errors
    /// When tensors do not fit together.
    pub fn run(&self, head: &Head, batch: &TrainBatch) -> Result<Unrolled> {
        let mut pass = head.pass(&batch.of_target, &batch.rows)?;
        let mut steps = Vec::with_capacity(self.depth);
        let mut total: Option<Tensor> = None;
        for k in 0..self.depth {
            let labels = batch.step(k)?;
            let HeadStep { state, logits, confidence } = pass.step(&labels.tokens)?;
            let counted = (self.loss.for_rows(&logits, &labels)? * &labels.counts)?.sum_all()?;
            steps.push(figures(&counted, &logits, &labels)?);
            let mut step = counted;
            if self.feature_weight > 0.0 {
                let wide = |x: &Tensor| x.to_dtype(math::wide(x.dtype()));
                let distance = math::smooth_l1(&wide(&state)?, &wide(&labels.last)?)?.mean(D::Minus1)?;
                step = (step + ((distance * &labels.counts)?.sum_all()? * self.feature_weight)?)?;
            }
            if let Some(confidence) = confidence {
                // Detached, since the estimate learns the acceptance and must not change it.
                let estimated = math::binary_cross_entropy(&confidence, &accepted(&logits, &labels)?.detach())?;
                step = (step + (estimated * &labels.counts)?.sum_all()?)?;
            }
            let weighted = (step * (self.decay.powi(k as i32) / batch.anchors.max(1) as f64))?;
            total = Some(match total {
                None => weighted,
                Some(total) => (total + weighted)?,
            });
        }
        let total = total.map_or_else(|| Tensor::zeros((), DType::F32, batch.of_target.device()), Ok)?;
        Ok(Unrolled { total, steps })
    }
}

impl ObjectiveLoss {
    /// The loss of each row.
    fn for_rows(self, logits: &Tensor, labels: &StepLabels) -> Result<Tensor> {
        match self {
            Self::Kl => math::divergence(logits, &labels.probabilities, &labels.negative_entropy),
            Self::CrossEntropy => {
                // Rows without a label do not count, so any token will do for them.
                let best: Vec<u32> = labels.best.iter().map(|best| best.unwrap_or_default()).collect();
                let best = Tensor::from_vec(best, (labels.best.len(), 1), logits.device())?;
                log_q(logits)?.gather(&best, 1)?.squeeze(1)?.neg()
            }
            // Draft and target may have no token in common, and the logarithm must stay finite.
            Self::Acceptance => accepted(logits, labels)?.clamp(1e-20, 1.0)?.log()?.neg(),
        }
    }
}

/// The probability that speculative sampling accepts a draft of each row, `Σ min(p, q)`.
fn accepted(logits: &Tensor, labels: &StepLabels) -> Result<Tensor> {
    // From shares of the draft's vocabulary to probabilities in the whole one.
    let p = labels.probabilities.broadcast_mul(&labels.mass)?;
    p.minimum(&log_q(logits)?.exp()?)?.sum(D::Minus1)
}

/// Log-probabilities of a draft.
fn log_q(logits: &Tensor) -> Result<Tensor> {
    math::log_softmax(&logits.to_dtype(math::wide(logits.dtype()))?)
}

fn figures(counted: &Tensor, logits: &Tensor, labels: &StepLabels) -> Result<StepFigures> {
    let loss = counted.to_dtype(DType::F64)?.to_scalar::<f64>()?;
    let likeliest = math::largest(logits)?.to_vec1::<u32>()?;
    let rows = labels.best.iter().flatten().count();
    let agreed = likeliest.iter().zip(&labels.best).filter(|(drafted, best)| Some(**drafted) == **best).count();
    Ok(StepFigures { loss, agreed, rows })
}

impl StepFigures {
    /// Adds other figures to these.
    pub fn add(&mut self, other: Self) {
        self.loss += other.loss;
        self.agreed += other.agreed;
        self.rows += other.rows;
    }

    /// Mean token loss over the rows that count.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.rows.max(1) as f64
    }

    /// Share of the rows that count in which draft and target agree.
    pub fn agreement(&self) -> f64 {
        self.agreed as f64 / self.rows.max(1) as f64
    }
}
