//! Passes of the target and of the draft over rows: what is launched, in order. Nothing here waits or allocates, so that
//! the same calls run at once or are recorded in a graph.

use kernels::{
    device::{Buffer, Device, DeviceError, Slice},
    launch::{
        Added, Ahead, Groups, JoinNormed, Kernels, Logits, LogprobRows, Proposals, RmsNorm, Rows, SamplingState, Sees,
        TopK,
    },
};

use super::{
    layer::{Ends, LayerOperands, Left, Next},
    layout::{Activations, MOST_CHOICES, RoundArrays, RowArrays, SlotArrays},
    linear::{Input, Vocabulary},
    products::Products,
    weights::{HeadWeights, Projection, TargetWeights},
};
use crate::{
    backend::{Asking, Capacity},
    model::{HeadKind, HeadSource, LayerFacts, TargetFacts},
};

/// Rows that a layer takes no longer for than for one: weights are what it waits for.
const FEW_ROWS: usize = 32;

/// Models, caches and how they are run.
pub struct Machine {
    pub kernels: Kernels,
    pub capacity: Capacity,
    pub target: TargetWeights,
    pub head: Option<HeadWeights>,
    /// `[layers, 2, cache rows, kv_heads, head_dim]`.
    pub target_cache: Buffer,
    /// `[2, cache rows + scratch rows, kv_heads, head_dim]`.
    pub head_cache: Buffer,
    /// Cosines and sines.
    pub target_turns: Buffer,
    pub head_turns: Buffer,
    /// Rows of both.
    pub positions: usize,
    /// Cache rows of requests, and of the page that padding writes to.
    pub cache_rows: usize,
    /// Scratch rows of the draft's cache behind them.
    pub scratch_rows: usize,
    /// Parts into which attention splits a long list of keys.
    pub splits: usize,
    pub attention: AttentionKernels,
    /// Every sum in an order that depends neither on the batch nor on the number of rows.
    pub batch_invariant: bool,
    /// Where the target is asked for a token; `None` for where that takes the least.
    pub asking: Option<Asking>,
    pub products: Products,
    pub slots: SlotArrays,
}

/// Which kernels attend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernels {
    /// `attention_rows`: each row on its own, always in the same order.
    Rows,
    /// `rotate_and_attend`: the rows of a request together, on tensor cores.
    Tiles,
}

/// Rows of a pass.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub rows: usize,
    /// Which of them belong to one request.
    pub groups: Groups<'a>,
    /// What they see.
    pub sees: Sees<'a>,
    pub arrays: &'a RowArrays,
    pub work: &'a Activations,
    /// The row of `work` from which on the target leaves captured layers and final hidden states.
    pub leaves_at: usize,
}

/// How tokens behind rows are chosen, int32 each.
#[derive(Clone, Copy)]
pub struct Sampled<'a> {
    /// The slots whose parameters say it.
    pub slot: Slice<'a>,
    /// The tokens' positions, with which they are drawn.
    pub position: Slice<'a>,
}

impl Machine {
    pub(super) fn device(&self) -> &Device {
        self.kernels.device()
    }

    pub(super) fn element_bytes(&self) -> usize {
        self.kernels.element().bytes()
    }

    pub(super) fn rows<'a>(&self, buffer: &'a Buffer, stride: usize) -> Rows<'a> {
        Rows { at: buffer.slice(), stride }
    }

    /// Bytes of one plane (keys or values of a layer) of a cache of so many rows.
    fn plane(&self, facts: &LayerFacts, rows: usize) -> usize {
        rows * facts.attention.key_value_heads * facts.attention.head_dim * self.element_bytes()
    }

    /// Runs the target over rows: final hidden states in `normed`, captured layers in `captured`, each from row `leaves_at` on.
    pub fn target_pass(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let facts = &self.target.facts;
        let hidden = facts.layer.hidden;
        let stream = self.rows(&work.stream, hidden);
        self.kernels.embed(
            stream,
            self.target.embedding.slice(),
            arrays.token.slice(),
            rows,
            hidden,
            facts.vocabulary,
        )?;
        let plane = self.plane(&facts.layer, self.cache_rows);
        let layers = &self.target.layers;
        let mut left = Left::Stream;
        for (at, layer) in layers.iter().enumerate() {
            let input = match left {
                Left::Normed(input) => input,
                left => self.enter_layer(pass, at, left.added(), layer.input_norm.as_ref(), Some(&layer.qkv))?,
            };
            let next = layers.get(at + 1).and_then(|next| {
                let norm = next.input_norm.as_ref()?;
                Some(Next { norm, layer: &next.qkv, keep: self.kept(pass, at + 1).next() })
            });
            let operands = LayerOperands {
                ahead: if at == 0 { Ahead::Layout } else { Ahead::Layer },
                facts: &facts.layer,
                weights: layer,
                input,
                cache: self.target_cache.range(2 * at * plane..2 * (at + 1) * plane),
                turns: self.target_turns.slice(),
                stream,
                next,
                ends: None,
            };
            left = self.layer(pass, operands)?;
            if matches!(left, Left::Normed(_)) {
                self.keep_again(pass, at + 1)?;
            }
        }
        self.enter_layer(pass, layers.len(), left.added(), Some(&self.target.norm), None).map(|_| ())
    }

    /// The final hidden states of a pass of the target.
    pub(super) fn final_states<'a>(&self, pass: Pass<'a>) -> Rows<'a> {
        let Pass { work, leaves_at, .. } = pass;
        let stride = self.target.facts.layer.hidden;
        Rows { at: work.normed.range(leaves_at * stride * self.element_bytes()..work.normed.bytes()), stride }
    }

    /// Where the draft wants what enters a layer to be kept.
    fn kept<'a>(&self, pass: Pass<'a>, at: usize) -> impl Iterator<Item = Rows<'a>> {
        let Pass { work, leaves_at, .. } = pass;
        let capture = self.head.as_ref().map_or(&[][..], |head| &head.facts.capture);
        let width = self.target.facts.layer.hidden;
        let (stride, bytes) = (capture.len() * width, self.element_bytes());
        (0..capture.len()).filter(move |place| capture[*place] == at).map(move |place| Rows {
            at: work.captured.range((leaves_at * stride + place * width) * bytes..work.captured.bytes()),
            stride,
        })
    }

    /// Keeps what enters a layer in all places but the first.
    fn keep_again(&self, pass: Pass<'_>, at: usize) -> Result<(), DeviceError> {
        let Pass { rows, work, .. } = pass;
        let width = self.target.facts.layer.hidden;
        let stream = self.rows(&work.stream, width);
        let mut places = self.kept(pass, at).skip(1);
        places.try_for_each(|keep| self.kernels.add_rows(stream, None, Some(keep), rows, width))
    }

    /// Adds to the stream, keeps it where the draft wants it, and norms it for a layer, or for what takes normed rows alone.
    fn enter_layer<'a>(
        &'a self,
        pass: Pass<'a>,
        at: usize,
        add: Option<Added<'a>>,
        norm: Option<&'a Buffer>,
        layer: Option<&Projection>,
    ) -> Result<Input<'a>, DeviceError> {
        let Pass { rows, work, .. } = pass;
        let facts = &self.target.facts.layer;
        let width = facts.hidden;
        let out = if layer.is_some() { self.rows(&work.normed, width) } else { self.final_states(pass) };
        let mut input = Input::from(out);
        if let Some(norm) = norm {
            let norm = RmsNorm {
                out: input.rows,
                stream: self.rows(&work.stream, width),
                add,
                weight: norm.slice(),
                keep: self.kept(pass, at).next(),
                source: None,
                rows,
                width,
                epsilon: facts.epsilon,
            };
            match layer {
                Some(layer) => input = self.norm_for(work, norm, layer)?,
                None => self.kernels.rms_norm(norm)?,
            }
        }
        self.keep_again(pass, at).map(|()| input)
    }

    /// Finds what groups see of their own, once for a pass, where the kernels that draft have not laid it out.
    pub fn gather_own(&self, pass: Pass<'_>) -> Result<(), DeviceError> {
        let Pass { rows, groups, sees, arrays, .. } = pass;
        match (self.attention, sees) {
            (AttentionKernels::Tiles, Sees::Own(own)) => {
                self.kernels.gather_own(own, arrays.own_count.slice(), arrays.own.slice(), groups, rows)
            }
            _ => Ok(()),
        }
    }

    /// The features of the draft's rows: row r takes what the target's pass left in row `source[r]` of `from`.
    pub fn features(
        &self,
        head: &HeadWeights,
        work: &Activations,
        from: Rows<'_>,
        source: Option<Slice<'_>>,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let target = self.target.facts.layer.hidden;
        let width = self.feature_width(head);
        if head.facts.kind == HeadKind::Eagle {
            let out = self.rows(&work.features, head.facts.layer.hidden);
            return self.kernels.gather_rows(out, None, from, source, rows, width);
        }
        if source.is_none() && head.capture_norms.is_empty() {
            return self.linear(work, work.features.slice(), from, &head.join, rows);
        }
        let gathered = self.rows(&work.gathered, width);
        self.kernels.gather_rows(gathered, None, from, source, rows, width)?;
        for (at, norm) in head.capture_norms.iter().enumerate() {
            let part =
                Rows { at: gathered.at.range(at * target * self.element_bytes()..gathered.at.bytes()), ..gathered };
            self.kernels.rms_norm(RmsNorm {
                out: part,
                stream: part,
                add: None,
                weight: norm.slice(),
                keep: None,
                source: None,
                rows,
                width: target,
                epsilon: head.facts.layer.epsilon,
            })?;
        }
        self.linear(work, work.features.slice(), gathered, &head.join, rows)
    }

    /// Runs the head over rows, of which `work.features` are the features, for its keys and values and for the states behind
    /// `count` rows, which are `lasts`. These go to `work.states[0]`, alone, or, if `keeps_all` says so or to part with the others
    /// takes longer than they do, among those of all. Returns which rows of it they are; `None` for the first.
    pub fn read<'a>(
        &self,
        head: &'a HeadWeights,
        pass: Pass<'a>,
        lasts: Slice<'a>,
        count: usize,
        keeps_all: bool,
    ) -> Result<Option<Slice<'a>>, DeviceError> {
        let parts = !keeps_all && pass.rows > FEW_ROWS && count < pass.rows;
        self.head_pass(head, pass, &pass.work.features, None, 0, parts.then_some((lasts, count)))?;
        Ok((!parts).then_some(lasts))
    }

    /// Runs the head over rows whose features are rows `source` of `features`. Behind attention all of them go on or, if `ends` says
    /// so, these alone, so many, one behind the other. The recurrent state goes to `work.states[state]`; returns what the draft's
    /// vocabulary is multiplied with, valid until the next pass.
    pub fn head_pass<'a>(
        &self,
        head: &'a HeadWeights,
        pass: Pass<'a>,
        features: &Buffer,
        source: Option<Slice<'_>>,
        state: usize,
        ends: Option<(Slice<'a>, usize)>,
    ) -> Result<Rows<'a>, DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let facts = &head.facts;
        let LayerFacts { hidden, epsilon, .. } = facts.layer;
        let bytes = self.element_bytes();
        let out = self.rows(&work.states[state], hidden);
        let ends = ends.map(|(rows, count)| Ends { rows, count, stream: out });
        let stream = self.rows(&work.states[if ends.is_some() { 1 - state } else { state }], hidden);
        let left = Rows { at: work.joined.slice(), stride: 2 * hidden };
        let right = Rows { at: work.joined.range(hidden * bytes..work.joined.bytes()), stride: 2 * hidden };
        let embedding = head.embedding.as_ref().unwrap_or(&self.target.embedding);
        let vocabulary = self.target.facts.vocabulary;
        let input = match (&head.layer.input_norm, &head.hidden_norm) {
            (Some(input_norm), Some(hidden_norm)) => {
                self.kernels.join_normed(JoinNormed {
                    joined: work.joined.slice(),
                    table: embedding.slice(),
                    vocabulary,
                    token: arrays.token.slice(),
                    token_norm: input_norm.slice(),
                    features: self.rows(features, hidden),
                    source,
                    feature_norm: hidden_norm.slice(),
                    stream,
                    stream_is_normed: facts.norm_before_residual,
                    rows,
                    width: hidden,
                    epsilon,
                })?;
                left
            }
            // EAGLE-1/2: the joined rows are reduced, and are the stream.
            _ => {
                self.kernels.embed(left, embedding.slice(), arrays.token.slice(), rows, hidden, vocabulary)?;
                self.kernels.gather_rows(right, None, self.rows(features, hidden), source, rows, hidden)?;
                self.linear(work, stream.at, left, &head.join, rows)?;
                stream
            }
        };
        let plane = self.plane(&facts.layer, self.cache_rows + self.scratch_rows);
        let cache = self.head_cache.range(0..2 * plane);
        let operands = LayerOperands {
            ahead: Ahead::Layout,
            facts: &facts.layer,
            weights: &head.layer,
            input: input.into(),
            cache,
            turns: self.head_turns.slice(),
            stream,
            next: None,
            ends,
        };
        let add = self.layer(pass, operands)?.added();
        let rows = ends.map_or(rows, |ends| ends.count);
        let Some(weight) = &head.norm else {
            return self.kernels.add_rows(out, add, None, rows, hidden).map(|()| out);
        };
        let norm = self.head_norm(head, weight, work, out, rows);
        self.kernels.rms_norm(RmsNorm { add, ..norm })?;
        Ok(norm.out)
    }

    /// The norm behind the head's layer, over rows of its recurrent state: in place, or beside them in `work.added`.
    fn head_norm<'a>(
        &self,
        head: &HeadWeights,
        weight: &'a Buffer,
        work: &'a Activations,
        stream: Rows<'a>,
        rows: usize,
    ) -> RmsNorm<'a> {
        let LayerFacts { hidden, epsilon, .. } = head.facts.layer;
        RmsNorm {
            out: if head.facts.norm_output { stream } else { self.rows(&work.added, hidden) },
            stream,
            add: None,
            weight: weight.slice(),
            keep: None,
            source: None,
            rows,
            width: hidden,
            epsilon,
        }
    }

    /// What the draft's vocabulary is multiplied with behind rows of its recurrent state, where it is not at hand from
    /// [`head_pass`](Self::head_pass). They are in `work.states[0]`, or are brought there from these rows of others that are kept.
    pub fn proposing<'a>(
        &self,
        head: &'a HeadWeights,
        work: &'a Activations,
        kept: Option<(Rows<'a>, Slice<'_>)>,
        rows: usize,
    ) -> Result<Rows<'a>, DeviceError> {
        let hidden = head.facts.layer.hidden;
        let state = self.rows(&work.states[0], hidden);
        let (stream, source) = kept.map_or((state, None), |(from, source)| (from, Some(source)));
        let Some(weight) = head.norm.as_ref().filter(|_| !head.facts.norm_output) else {
            if source.is_some() {
                self.kernels.gather_rows(state, None, stream, source, rows, hidden)?;
            }
            return Ok(state);
        };
        let norm = self.head_norm(head, weight, work, stream, rows);
        self.kernels.rms_norm(RmsNorm { keep: source.map(|_| state), source, ..norm })?;
        Ok(norm.out)
    }

    /// The best tokens behind rows that [`head_pass`](Self::head_pass) or [`proposing`](Self::proposing) has left, with
    /// log-probabilities: `[rows, topk]`.
    pub fn propose(
        &self,
        head: &HeadWeights,
        work: &Activations,
        x: Rows<'_>,
        rows: usize,
        topk: usize,
        best: Proposals<'_>,
    ) -> Result<(), DeviceError> {
        let facts = &head.facts;
        let weight = match (&head.head, facts.head) {
            (Some(own), _) => own,
            (None, HeadSource::Embedding) => head.embedding.as_ref().unwrap_or(&self.target.embedding),
            (None, _) => self.target.head(),
        };
        let map = head.tokens.as_ref().map(Buffer::slice);
        let vocabulary = Vocabulary { weight, inputs: facts.layer.hidden, tokens: facts.vocabulary, awaited: None };
        self.over_logits(x, vocabulary, rows, work, |start, logits| {
            self.kernels.top_k_rows(TopK {
                ids: best.ids.range(start * topk * 4..best.ids.bytes()),
                logprobs: best.logprobs.range(start * topk * 4..best.logprobs.bytes()),
                logits,
                count: topk,
                token_map: map,
            })
        })
    }

    /// The target's token behind each of some rows of hidden states, greedy or sampled. They may be any where nobody awaits them
    /// (see [`Linear::awaited`](kernels::launch::Linear)).
    pub fn choose(
        &self,
        work: &Activations,
        hidden_rows: Rows<'_>,
        rows: usize,
        chosen: Slice<'_>,
        sampled: Sampled<'_>,
        awaited: Option<Slice<'_>>,
    ) -> Result<(), DeviceError> {
        let state = SamplingState {
            slots: self.capacity.slots + 1,
            temperature: self.slots.temperature.slice(),
            top_p: self.slots.top_p.slice(),
            top_k: self.slots.top_k.slice(),
            min_p: self.slots.min_p.slice(),
            seed: self.slots.seed.slice(),
        };
        let vocabulary = Vocabulary { awaited, ..self.target_vocabulary() };
        self.over_logits(hidden_rows, vocabulary, rows, work, |start, logits| {
            let chosen = from_row(chosen, start);
            self.kernels.argmax_rows(chosen, logits)?;
            // Leaves the rows of greedy requests alone.
            let Sampled { slot, position } = sampled;
            self.kernels.sample_rows(chosen, logits, from_row(slot, start), from_row(position, start), state)
        })
    }

    /// Log-probabilities of the tokens in `arrays`, each behind its row of hidden states, for the slots that want them.
    pub fn describe(
        &self,
        pass: Pass<'_>,
        hidden_rows: Rows<'_>,
        tokens: Slice<'_>,
        round: &RoundArrays,
    ) -> Result<(), DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let facts = &self.target.facts;
        let (all, bytes) = (round.described_rows, round.described.bytes());
        self.over_logits(hidden_rows, self.target_vocabulary(), rows, work, |start, logits| {
            let part = |first: usize, width: usize| (first + start * width) * 4..bytes;
            let operands = LogprobRows {
                logprobs: round.described.range(part(0, 1)),
                top_ids: round.described.range(part(all, MOST_CHOICES)),
                top_logprobs: round.described.range(part(all * (1 + MOST_CHOICES), MOST_CHOICES)),
                count: MOST_CHOICES.min(facts.vocabulary),
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

    /// Logits of the target behind rows of its final hidden states, as many at once as there is room for.
    pub fn target_logits(
        &self,
        work: &Activations,
        hidden_rows: Rows<'_>,
        rows: usize,
        use_logits: impl FnMut(usize, Logits<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.over_logits(hidden_rows, self.target_vocabulary(), rows, work, use_logits)
    }

    /// What the target multiplies its final hidden states with.
    pub(super) fn target_vocabulary(&self) -> Vocabulary<'_> {
        let TargetFacts { layer, vocabulary, .. } = &self.target.facts;
        Vocabulary { weight: self.target.head(), inputs: layer.hidden, tokens: *vocabulary, awaited: None }
    }
}

/// An array of a value for each row, from a row on.
fn from_row(values: Slice<'_>, row: usize) -> Slice<'_> {
    values.range(row * 4..values.bytes())
}
