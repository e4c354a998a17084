//! Tokens from hidden states: the draft's proposals, the target's choices, and log-probabilities of
//! these.

use kernels::{
    device::{DeviceError, Slice},
    launch::{Logits, LogprobRows, Proposals, Rows, SamplingState, TopK},
};

use crate::{
    backend::cuda::{
        limits::MOST_CHOICES,
        machine::{Machine, Pass},
        ops::LmHead,
        weights::ProposalHead,
        workspace::{Activations, RoundArrays, Sampled},
    },
    spec::TargetSpec,
};

impl Machine {
    /// The best `topk` tokens with log-probabilities, `[rows, topk]`, after the inputs of a draft's
    /// vocabulary head.
    pub fn propose(
        &self,
        head: ProposalHead<'_>,
        work: &Activations,
        x: Rows<'_>,
        rows: usize,
        topk: usize,
        best: Proposals<'_>,
    ) -> Result<(), DeviceError> {
        self.over_logits(x, head.vocabulary(), rows, work, |start, logits| {
            self.kernels.top_k_rows(TopK {
                ids: best.ids.range(start * topk * 4..best.ids.bytes()),
                logprobs: best.logprobs.range(start * topk * 4..best.logprobs.bytes()),
                logits,
                count: topk,
                token_map: head.tokens,
            })
        })
    }

    /// The target's token, greedy or sampled, after each of these rows of hidden states. Tokens
    /// that are not needed are arbitrary (see [`Linear::needed`](kernels::launch::Linear)).
    pub fn choose(
        &self,
        work: &Activations,
        hidden_rows: Rows<'_>,
        rows: usize,
        chosen: Slice<'_>,
        sampled: Sampled<'_>,
        needed: Option<Slice<'_>>,
    ) -> Result<(), DeviceError> {
        let state = SamplingState {
            slots: self.capacity.slots + 1,
            temperature: self.slots.temperature.slice(),
            top_p: self.slots.top_p.slice(),
            top_k: self.slots.top_k.slice(),
            min_p: self.slots.min_p.slice(),
            seed: self.slots.seed.slice(),
        };
        let vocabulary = LmHead { needed, ..self.target_vocabulary() };
        self.over_logits(hidden_rows, vocabulary, rows, work, |start, logits| {
            let chosen = from_row(chosen, start);
            self.kernels.argmax_rows(chosen, logits)?;
            // Does not change the rows of greedy requests.
            let Sampled { slot, position } = sampled;
            self.kernels.sample_rows(chosen, logits, from_row(slot, start), from_row(position, start), state)
        })
    }

    /// Log-probabilities of `tokens`, each after its row of hidden states, for the slots that
    /// request them.
    pub fn describe(
        &self,
        pass: Pass<'_>,
        hidden_rows: Rows<'_>,
        tokens: Slice<'_>,
        round: &RoundArrays,
    ) -> Result<(), DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let (all, bytes) = (round.described_rows, round.described.bytes());
        self.over_logits(hidden_rows, self.target_vocabulary(), rows, work, |start, logits| {
            // Three arrays in a row: log-probabilities of the tokens, ids of the best ones, and
            // theirs.
            let part = |first: usize, width: usize| (first + start * width) * 4..bytes;
            let operands = LogprobRows {
                logprobs: round.described.range(part(0, 1)),
                top_ids: round.described.range(part(all, MOST_CHOICES)),
                top_logprobs: round.described.range(part(all * (1 + MOST_CHOICES), MOST_CHOICES)),
                count: MOST_CHOICES.min(self.target.spec.vocabulary),
                logits,
                rows: logits.rows,
                row_source: None,
                token: tokens.range(start * 4..tokens.bytes()),
                row_slot: arrays.slot.range(start * 4..arrays.slot.bytes()),
                logprob_count: self.slots.logprob_count.slice(),
            };
            self.kernels.logprob_rows(operands)
        })
    }

    /// Logits of the target for rows of its final hidden states, in chunks that fit the workspace.
    pub fn target_logits(
        &self,
        work: &Activations,
        hidden_rows: Rows<'_>,
        rows: usize,
        use_logits: impl FnMut(usize, Logits<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.over_logits(hidden_rows, self.target_vocabulary(), rows, work, use_logits)
    }

    /// The target's vocabulary head.
    fn target_vocabulary(&self) -> LmHead<'_> {
        let TargetSpec { hidden, vocabulary, head_rows, .. } = self.target.spec;
        let weight = self.target.head();
        LmHead { weight, inputs: hidden, tokens: vocabulary, own: head_rows, needed: None }
    }
}

impl<'a> ProposalHead<'a> {
    /// Operands of its product.
    pub fn vocabulary(self) -> LmHead<'a> {
        let Self { weight, hidden, vocabulary, rows, .. } = self;
        LmHead { weight, inputs: hidden, tokens: vocabulary, own: rows, needed: None }
    }
}

/// The part of an array of one value per row that starts at a row.
pub fn from_row(values: Slice<'_>, row: usize) -> Slice<'_> {
    values.range(row * 4..values.bytes())
}
