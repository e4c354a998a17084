//! The kernels of a round: draft → verify → accept → compact → extend, all on the device.
//!
//! A round is captured in one graph, or in its parts when these are timed.

use kernels::{
    device::{DeviceError, Slice},
    launch::{
        CachePlanes, Drafting, Groups, HostTrees, LookedUpChains, Proposals, Rows, Sees, TreeNodes, VerifiedNodes,
        VerifyRows,
    },
};
use schemas::tree::TreeShape;

use super::{
    host_drafts::{bytes_of, chain_words},
    machine::{Machine, Pass},
    part::RoundPart,
    weights::{DraftWeights, StepwiseWeights},
    workspace::{Activations, RoundArrays, RowArrays},
};

/// Memory that a round writes, in addition to the state of its slots.
#[derive(Clone, Copy)]
pub struct RoundMemory<'a> {
    pub work: &'a Activations,
    pub arrays: &'a RowArrays,
    pub round: &'a RoundArrays,
}

/// Optional work of a round in addition to drafting, verifying and accepting.
#[derive(Clone, Copy, Debug)]
pub struct RoundOptions {
    /// Keeps the accepted tokens for the draft to process later. A round that speculates runs the
    /// draft over them at once.
    pub keep_pending: bool,
    /// Writes log-probabilities for the slots that request them.
    pub describe: bool,
    /// Simulated accept length: tokens accepted on average.
    pub simulate: Option<f32>,
}

/// The trees of a batch in the verify pass.
#[derive(Clone, Copy)]
pub struct Verifying<'a> {
    pub memory: RoundMemory<'a>,
    pub shape: TreeShape,
    /// Number of requests.
    pub batch: usize,
    pub tree: TreeNodes<'a>,
    pub options: RoundOptions,
}

impl Machine {
    /// Launches parts of a round of `batch` requests, whose slots are in [`RoundArrays::slot`].
    /// Each part uses the results of the parts before it.
    pub fn round(
        &self,
        parts: &[RoundPart],
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        options: RoundOptions,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let tree = TreeNodes {
            nodes: shape.num_draft_tokens,
            token: round.node_token.slice(),
            parent: round.node_parent.slice(),
            depth: round.node_depth.slice(),
            score: round.node_score.slice(),
        };
        let verify = VerifyRows {
            sample_position: arrays.sample_position.slice(),
            group_prefix: Some(round.group_prefix.slice()),
            outputs: Some(round.outputs()),
        };
        let sequences = self.slots.sequences(&self.capacity);
        let drafting = self.draft.as_ref().filter(|_| !shape.is_off());
        let verifying = Verifying { memory, shape, batch, tree, options };
        for part in parts {
            // Without speculation no part drafts, so the one row per request is laid out here.
            if shape.is_off() && matches!(part, RoundPart::Verify | RoundPart::Choose) {
                self.kernels.decode_begin(batch, round.slot.slice(), sequences, tree, arrays.pass(), verify)?;
            }
            if let Some(texts) = self.texts.as_ref().filter(|_| *part == RoundPart::Draft && !shape.is_off()) {
                self.look_up(texts, memory, shape, batch)?;
            }
            match (part, drafting) {
                (RoundPart::Draft, Some(draft)) => {
                    match draft {
                        DraftWeights::Recurrent(draft) => {
                            self.draft_trees(memory, StepwiseWeights::Head(draft), shape, batch, tree, verify)?;
                        }
                        DraftWeights::Model(draft) => {
                            self.draft_trees(memory, StepwiseWeights::Model(draft), shape, batch, tree, verify)?;
                        }
                        DraftWeights::Block(draft) => {
                            self.draft_blocks(memory, draft, shape, batch, tree, verify)?;
                        }
                    }
                    if self.joins_chains {
                        self.join_chains(memory, shape, batch, tree, verify)?;
                    }
                    self.play_trees(memory, shape, batch, tree, verify)?;
                }
                (RoundPart::Draft, None) if !shape.is_off() => {
                    self.lay_out_given(memory, shape, batch, tree, verify)?
                }
                (RoundPart::Draft, None) => {}
                (RoundPart::Verify, _) => self.verify(verifying)?,
                (RoundPart::Choose, _) => self.choose_everywhere(verifying)?,
                (RoundPart::Accept, _) => self.accept(verifying, VerifiedNodes::All)?,
                (RoundPart::Extend, _) => self.settle(memory, shape, batch, options.keep_pending)?,
            }
        }
        Ok(())
    }

    /// Moves cache rows of accepted nodes to their positions, and runs the draft over the accepted
    /// tokens or keeps them for later.
    fn settle(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        keep_pending: bool,
    ) -> Result<(), DeviceError> {
        let most = shape.longest_path();
        // Without branches every node is already at its position, even with simulated acceptance.
        if self.has_branches(shape) && shape.num_steps > 0 {
            let (kv, layers, moves) = (self.target.spec.kv(), self.target.layers.len(), memory.round.moves());
            let planes = kv.planes * (self.target.spec.caches_before(layers) - self.windows_before(layers));
            let (rows, row_bytes) = (self.cache_rows, kv.row_bytes(self.element_bytes()));
            if planes > 0 {
                let caches = CachePlanes { at: self.target_cache.slice(), planes, rows, row_bytes };
                self.kernels.compact_cache(caches, moves, batch, most)?;
            }
            self.compact_windows(moves, batch, most)?;
        }
        match &self.draft {
            Some(draft) if !shape.is_off() => {
                self.extend(memory, draft, self.feature_rows(draft, memory.work), batch, most)
            }
            Some(draft) if keep_pending => self.keep_pending(memory, draft, batch),
            _ => Ok(()),
        }
    }

    /// Lays out the rows of the verify pass of the trees that were looked up.
    fn lay_out_given(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let bytes = batch * shape.num_draft_tokens * 4;
        let [token, parent] = [0, 1].map(|at| memory.round.given.range(at * bytes..(at + 1) * bytes));
        self.lay_out_trees(memory, shape, batch, (token, parent, None), tree, verify)
    }

    /// Lays out the rows of the verify pass of trees with these tokens, parents and scores.
    pub(super) fn lay_out_trees(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        (token, parent, score): (Slice<'_>, Slice<'_>, Option<Slice<'_>>),
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let (batch_slot, own) = (round.slot.slice(), self.listed_own(arrays));
        let trees = HostTrees { batch, steps: shape.num_steps, batch_slot, token, parent, score, own };
        self.kernels.host_trees(trees, self.slots.sequences(&self.capacity), tree, arrays.pass(), verify)
    }

    /// Joins the trees that the draft has grown with chains that were looked up, and lays out the
    /// rows of the verify pass again.
    fn join_chains(
        &self,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { arrays, round, .. } = memory;
        let steps = shape.num_steps;
        let [length, token, chance] = chain_words(batch, steps).map(|words| round.given.range(bytes_of(words)));
        let batch_slot = round.slot.slice();
        let own = self.listed_own(arrays);
        let chains = LookedUpChains { batch, steps, batch_slot, length, token, chance, own };
        // The kernel that has grown the trees has advanced the output.
        let verify = VerifyRows { outputs: None, ..verify };
        self.kernels.join_chains(chains, self.slots.sequences(&self.capacity), tree, arrays.pass(), verify)
    }

    /// Grows the trees and lays out the rows of the verify pass.
    fn draft_trees(
        &self,
        memory: RoundMemory<'_>,
        draft: StepwiseWeights<'_>,
        shape: TreeShape,
        batch: usize,
        tree: TreeNodes<'_>,
        verify: VerifyRows<'_>,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let TreeShape { num_steps: steps, topk, .. } = shape;
        let (hidden, head) = (draft.width(), draft.proposal_head(&self.target));
        let sequences = self.slots.sequences(&self.capacity);
        let drafting = Drafting {
            batch,
            steps,
            topk,
            vocabulary: head.vocabulary,
            scratch_base: self.cache_rows,
            batch_slot: round.slot.slice(),
            pool_token: round.pool_token.slice(),
            pool_score: round.pool_score.slice(),
            pool_parent: round.pool_parent.slice(),
            beam_place: round.beam_place.slice(),
            own: self.listed_own(arrays),
        };
        let proposals = Proposals { ids: round.ids.slice(), logprobs: round.logprobs.slice() };
        let propose = |x: Rows<'_>, rows: usize| self.propose(head, work, x, rows, topk, proposals);
        // The first step needs no pass: the extension of the last round left the draft's state
        // after the last token.
        let kept = (Rows { at: self.slots.recurrent.slice(), stride: hidden }, round.slot.slice());
        propose(self.ranked_states(draft, work, Some(kept), batch)?, batch)?;
        if steps > 1 {
            self.kernels.draft_begin(drafting, proposals, sequences, arrays.pass(), arrays.source.slice())?;
            self.place_rows(draft, arrays, batch * topk, false)?;
        }
        for step in 1..steps {
            // A pass reads the states of the step before while it writes its own.
            let (from, to) = ((step - 1) % 2, step % 2);
            let sees = arrays.branches();
            let beams = Pass::new(batch * topk, Groups::Even(topk), sees, arrays, work);
            let x = self.step(draft, beams, &work.states[from], Some(arrays.source.slice()), to)?;
            propose(x, beams.rows)?;
            // The proposals of the last step have no pass after them: `draft_finish` only ranks
            // them.
            if step + 1 < steps {
                let source = arrays.source.slice();
                self.kernels.draft_expand(drafting, step, proposals, sequences, arrays.pass(), source)?;
                self.place_rows(draft, arrays, batch * topk, false)?;
            }
        }
        self.kernels.draft_finish(drafting, proposals, sequences, tree, arrays.pass(), verify)
    }

    /// Runs the draft over rows that are laid out, `most` per request, and keeps its state after
    /// the last row of each request. The features are computed from rows of `from`. A block head
    /// only keeps their keys and values, and a whole model reads the tokens alone.
    pub fn extend(
        &self,
        memory: RoundMemory<'_>,
        draft: &DraftWeights,
        from: Rows<'_>,
        batch: usize,
        most: usize,
    ) -> Result<(), DeviceError> {
        let RoundMemory { work, arrays, round } = memory;
        let source = Some(arrays.source.slice());
        let pass = |rows| Pass::new(rows, Groups::Even(most), Sees::Positions, arrays, work);
        let draft = match draft {
            DraftWeights::Recurrent(draft) => draft,
            DraftWeights::Block(draft) => return self.keep_context(draft, work, from, source, arrays, batch * most),
            DraftWeights::Model(model) => {
                let (draft, pass) = (StepwiseWeights::Model(model), pass(batch * most));
                self.place_rows(draft, arrays, pass.rows, true)?;
                self.model_pass(model, pass, 0)?;
                let lasts = Some(round.last_row.slice());
                return self.keep_state(draft, work, Some(round.slot.slice()), lasts, batch);
            }
        };
        let pass = pass(batch * most);
        self.features(draft, work, from, source, pass.rows)?;
        let lasts = self.read(draft, pass, round.last_row.slice(), batch, false)?;
        self.keep_state(StepwiseWeights::Head(draft), work, Some(round.slot.slice()), lasts, batch)
    }

    /// Stores the first rows of the draft's state, or `rows` of it, as the state of slots.
    pub fn keep_state(
        &self,
        draft: StepwiseWeights<'_>,
        work: &Activations,
        slots: Option<Slice<'_>>,
        rows: Option<Slice<'_>>,
        count: usize,
    ) -> Result<(), DeviceError> {
        let hidden = draft.width();
        let to = Rows { at: self.slots.recurrent.slice(), stride: hidden };
        let from = Rows { at: work.states[0].slice(), stride: hidden };
        self.kernels.gather_rows(to, slots, from, rows, count, hidden)
    }
}
