//! Passes of a block head.

use kernels::{
    device::{DeviceError, Slice},
    launch::{
        BlockLayout, ContextRows, FirstLevel, Groups, LevelRows, MarkovOrder, MarkovStates, MarkovTokens, Proposals,
        RmsNorm, RotaryRows, Rows, TopK,
    },
};

use super::{layers::LayerStack, logits::from_row};
use crate::{
    backend::cuda::{
        machine::{Machine, Pass},
        ops::LmHead,
        weights::{BlockWeights, MarkovWeights},
        workspace::{Activations, BlockArrays, RowArrays},
    },
    spec::{MarkovKind, MarkovSpec},
};

/// The blocks of a batch.
#[derive(Clone, Copy)]
pub struct BlockBatch<'a> {
    /// Requests, padding included.
    pub batch: usize,
    /// Rows of a block.
    pub rows: usize,
    /// Drafts along a path: the rows of a block that propose.
    pub steps: usize,
    /// int32 `[batch]`.
    pub batch_slot: Slice<'a>,
    /// Positions and tokens of the first rows, if they are not the slots' lengths and last tokens.
    pub places: Option<[Slice<'a>; 2]>,
}

/// The nodes of a level, whose children a Markov head ranks.
#[derive(Clone, Copy)]
pub struct MarkovLevel<'a> {
    /// Their depth.
    pub depth: usize,
    /// Their number, over all requests.
    pub rows: usize,
    pub nodes: LevelRows<'a>,
    /// The rows of the block that propose, after the head's last norm.
    pub hidden: Rows<'a>,
}

impl Machine {
    /// Keeps what the head needs of rows: their keys and values in all of its layers. Row r has
    /// what the target's pass stored in row `source[r]` of `from`.
    pub fn keep_context(
        &self,
        draft: &BlockWeights,
        work: &Activations,
        from: Rows<'_>,
        source: Option<Slice<'_>>,
        arrays: &RowArrays,
        rows: usize,
    ) -> Result<(), DeviceError> {
        // Without attention nothing of the context is read later.
        let Some(attention) = draft.attention() else { return Ok(()) };
        let width = draft.spec.hidden();
        let from = match source {
            None => from,
            Some(source) => {
                let gathered = self.rows(&work.gathered, from.stride);
                self.kernels.gather_rows(gathered, None, from, Some(source), rows, from.stride)?;
                gathered
            }
        };
        let context = self.rows(&work.features, width);
        self.linear(work, context.at, from, &draft.reduce, rows)?;
        self.kernels.rms_norm(RmsNorm {
            out: context,
            stream: context,
            add: None,
            weight: draft.context_norm.slice(),
            keep: None,
            source: None,
            rows,
            width,
            epsilon: draft.spec.epsilon(),
        })?;
        let kv = work.gate_up.slice();
        self.linear(work, kv, context, &draft.context, rows)?;
        self.kernels.write_context(ContextRows {
            kv,
            rotary: RotaryRows {
                table: self.draft_rotations.slice(),
                positions: self.positions,
                position: arrays.position.slice(),
            },
            write: arrays.write.slice(),
            cache: self.draft_cache.slice(),
            key_norms: draft.key_norms.as_ref().map(|norms| (norms.slice(), draft.spec.epsilon())),
            rows,
            layers: draft.layers.len(),
            kv_heads: attention.key_value_heads,
            head_dim: attention.head_dim,
        })
    }

    /// Runs the head over blocks. Returns the rows that propose, `[batch · steps, hidden]`, after
    /// the head's last norm; they are valid until the next pass.
    pub fn block_pass<'a>(
        &'a self,
        draft: &'a BlockWeights,
        work: &'a Activations,
        arrays: &'a BlockArrays,
        blocks: BlockBatch<'_>,
    ) -> Result<Rows<'a>, DeviceError> {
        let BlockBatch { batch, rows, steps, .. } = blocks;
        let (all, width) = (batch * rows, draft.spec.hidden());
        self.lay_out_blocks(draft, arrays, blocks)?;
        let Some(first) = arrays.views.first() else {
            return Err(DeviceError::Shape("a block head without layers".into()));
        };
        let stream = self.rows(&work.stream, width);
        let table = draft.embedding.as_ref().unwrap_or(&self.target.embedding).slice();
        let vocabulary = self.target.spec.vocabulary;
        match &draft.mask {
            None => self.kernels.embed(stream, table, first.rows.token.slice(), all, width, vocabulary)?,
            Some(mask) => {
                // A table of one row: every token is that row. Then the first row of each block.
                self.kernels.embed(stream, mask.slice(), first.rows.token.slice(), all, width, 1)?;
                let roots = Rows { stride: rows * stream.stride, ..stream };
                self.kernels.embed(roots, table, arrays.level(1).token, batch, width, vocabulary)?;
            }
        }
        let passes: Vec<Pass<'a>> = arrays
            .views
            .iter()
            .map(|view| {
                let pass = Pass::new(all, Groups::Even(rows), view.rows.branches(), &view.rows, work);
                Pass { pages: view.pages(), ..pass }
            })
            .collect();
        let kv = draft.spec.layers.first().map(|layer| layer.layer.attention.kv());
        let add = self.run_layers(
            work,
            all,
            LayerStack {
                layers: &draft.layers,
                width,
                rotations: self.draft_rotations.slice(),
                cache: &|at| kv.map_or(Slice::NONE, |kv| self.draft_layer_cache(kv, at)),
                pass: &|at| passes[draft.view_of[at]],
                kept: &|_| Vec::new(),
            },
        )?;
        let normed = self.rows(&work.normed, width);
        self.kernels.rms_norm(RmsNorm {
            out: normed,
            stream,
            add,
            weight: draft.norm.slice(),
            keep: None,
            source: None,
            rows: all,
            width,
            epsilon: draft.spec.epsilon(),
        })?;
        if steps == rows {
            return Ok(normed);
        }
        let proposing = self.rows(&work.added, width);
        let source = arrays.proposing.slice();
        self.kernels.gather_rows(proposing, None, normed, Some(source), batch * steps, width)?;
        Ok(proposing)
    }

    /// Lays out the rows of blocks for all views.
    fn lay_out_blocks(
        &self,
        draft: &BlockWeights,
        arrays: &BlockArrays,
        blocks: BlockBatch<'_>,
    ) -> Result<(), DeviceError> {
        let BlockBatch { batch, rows, steps, batch_slot, places } = blocks;
        let LevelRows { token, base, .. } = arrays.level(1);
        let skipped = usize::from(!draft.spec.block.anchored);
        let first = FirstLevel { token, base, proposing: arrays.proposing.slice(), skipped, steps };
        for (at, view) in arrays.views.iter().enumerate() {
            let layout = BlockLayout {
                batch,
                rows,
                view: view.view,
                mask: draft.spec.mask,
                scratch_base: self.cache_rows,
                batch_slot,
                places,
                pages: view.pages(),
                own: self.listed_own(&view.rows),
                first: (at == 0).then_some(first),
            };
            self.kernels.block_begin(layout, self.slots.sequences(&self.capacity), view.rows.pass())?;
        }
        Ok(())
    }

    /// Writes the logits of the rows that propose, from which a Markov head ranks the children of
    /// nodes.
    pub fn write_base(
        &self,
        draft: &BlockWeights,
        work: &Activations,
        hidden: Rows<'_>,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let head = draft.proposal_head(&self.target);
        self.write_logits(work.markov.base.slice(), hidden, head.vocabulary(), rows, work)
    }

    /// The best `topk` children of the nodes of a level, with log-probabilities, `[nodes, topk]`.
    pub fn rank_level(
        &self,
        draft: &BlockWeights,
        markov: &MarkovWeights,
        work: &Activations,
        level: MarkovLevel<'_>,
        topk: usize,
        best: Proposals<'_>,
    ) -> Result<(), DeviceError> {
        let (rank, base) = (markov.spec.rank, level.nodes.base);
        self.latent_vectors(draft, markov, work, level)?;
        let vocabulary = draft.spec.vocabulary;
        let head =
            LmHead { weight: markov.head.slice(), inputs: rank, tokens: vocabulary, own: vocabulary, needed: None };
        let latent = self.rows(&work.markov.latent, rank);
        self.over_logits(latent, head, level.rows, work, |start, logits| {
            self.kernels.add_base(logits, work.markov.base.slice(), from_row(base, start))?;
            self.kernels.top_k_rows(TopK {
                ids: from_row(best.ids, start * topk),
                logprobs: from_row(best.logprobs, start * topk),
                logits,
                count: topk,
                token_map: draft.proposal_head(&self.target).tokens,
            })
        })
    }

    /// The latent vectors of a Markov head for the nodes of a level, and its states after them.
    fn latent_vectors(
        &self,
        draft: &BlockWeights,
        markov: &MarkovWeights,
        work: &Activations,
        level: MarkovLevel<'_>,
    ) -> Result<(), DeviceError> {
        let MarkovLevel { depth, rows, nodes: LevelRows { token, source, base, .. }, hidden } = level;
        let (MarkovSpec { rank, kind }, vocabulary) = (markov.spec, self.target.spec.vocabulary);
        let buffers = &work.markov;
        let embedding = markov.embedding.slice();
        let tokens = MarkovTokens { embedding, vocabulary, rank, token };
        let (latent, inputs, joint) = (buffers.latent.slice(), buffers.inputs.slice(), buffers.joint.slice());
        let hidden = (hidden, draft.spec.hidden());
        match (&markov.cell, kind) {
            (Some(cell), MarkovKind::Gated) => {
                self.kernels.markov_inputs(inputs, tokens, hidden, base, MarkovOrder::HiddenFirst, rows)?;
                self.linear(work, joint, Rows { at: inputs, stride: cell.inputs }, cell, rows)?;
                self.kernels.markov_gate(latent, joint, tokens, rows)
            }
            (Some(cell), MarkovKind::Recurrent) => {
                let [after, before] = [depth % 2, (depth + 1) % 2].map(|at| buffers.states[at].slice());
                let before = (depth > 0).then_some(MarkovStates { at: before, source });
                let order = MarkovOrder::StateFirst(before);
                self.kernels.markov_inputs(inputs, tokens, hidden, base, order, rows)?;
                self.linear(work, joint, Rows { at: inputs, stride: cell.inputs }, cell, rows)?;
                self.kernels.markov_cell(latent, after, joint, before, rank, rows)
            }
            (None, _) | (Some(_), MarkovKind::Vanilla) => {
                self.kernels.embed(Rows { at: latent, stride: rank }, embedding, token, rows, rank, vocabulary)
            }
        }
    }
}
