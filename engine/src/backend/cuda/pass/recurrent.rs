//! Passes of a draft that reads its own state step by step.

use kernels::{
    device::{Buffer, DeviceError, Slice},
    launch::{Ahead, JoinNormed, RmsNorm, Rows},
};

use crate::{
    backend::cuda::{
        machine::{Machine, Pass},
        ops::{Input, LayerOperands, NeededRows},
        weights::{JoinNorms, JoinWeights, RecurrentWeights},
        workspace::Activations,
    },
    spec::Feedback,
};

/// Number of rows up to which a layer takes as long as for one: it is bound by reading weights.
const FEW_ROWS: usize = 32;

/// Features that a pass of the draft reads.
#[derive(Clone, Copy)]
struct FeatureRows<'a> {
    /// Feature rows, `[rows, draft hidden]`.
    from: &'a Buffer,
    /// The feature row that each row reads, int32 `[rows]`; `None`: its own.
    source: Option<Slice<'a>>,
}

impl Machine {
    /// Computes the features of the draft's rows: row r from what the target's pass stored in row
    /// `source[r]` of `from`.
    pub fn features(
        &self,
        draft: &RecurrentWeights,
        work: &Activations,
        from: Rows<'_>,
        source: Option<Slice<'_>>,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let width = draft.spec.feature_width(self.target.spec.hidden);
        let features = self.rows(&work.features, draft.spec.hidden());
        if draft.spec.sees_final() {
            return self.kernels.gather_rows(features, None, from, source, rows, width);
        }
        let unnormed = draft.capture_norms.is_empty() && draft.joined_norm.is_none();
        // Rows in their own order and without norms are projected from where the target stored
        // them.
        if let (Some(reduce), None, true) = (&draft.reduce, source, unnormed) {
            return self.linear(work, features.at, from, reduce, rows);
        }
        let gathered = self.rows(&work.gathered, width);
        self.kernels.gather_rows(gathered, None, from, source, rows, width)?;
        self.norm_features(draft, gathered, rows)?;
        match &draft.reduce {
            Some(reduce) => self.linear(work, features.at, gathered, reduce, rows),
            None => self.kernels.gather_rows(features, None, gathered, None, rows, width),
        }
    }

    /// Norms captured features in place: first over the concatenation, then each of them.
    fn norm_features(&self, draft: &RecurrentWeights, gathered: Rows<'_>, rows: usize) -> Result<(), DeviceError> {
        let target = self.target.spec.hidden;
        let norm = |part: Rows<'_>, weight: &Buffer, width: usize| {
            self.kernels.rms_norm(RmsNorm {
                out: part,
                stream: part,
                add: None,
                weight: weight.slice(),
                keep: None,
                source: None,
                rows,
                width,
                epsilon: draft.layer.epsilon,
            })
        };
        if let Some(weight) = &draft.joined_norm {
            norm(gathered, weight, gathered.stride)?;
        }
        for (at, weight) in draft.capture_norms.iter().enumerate() {
            let start = at * target * self.element_bytes();
            norm(Rows { at: gathered.at.range(start..gathered.at.bytes()), ..gathered }, weight, target)?;
        }
        Ok(())
    }

    /// Runs the draft over rows whose features are in `work.features`, for its keys and values and
    /// for the states after `count` rows, `lasts`. With `keeps_all`, or if dropping the other rows
    /// would not pay, `work.states[0]` receives the states of all rows, and the indices of the
    /// requested ones are returned. Otherwise it receives only these, and the result is `None`.
    pub fn read<'a>(
        &self,
        draft: &'a RecurrentWeights,
        pass: Pass<'a>,
        lasts: Slice<'a>,
        count: usize,
        keeps_all: bool,
    ) -> Result<Option<Slice<'a>>, DeviceError> {
        let parts = !keeps_all && pass.rows > FEW_ROWS && count < pass.rows;
        self.draft_pass(draft, pass, &pass.work.features, None, 0, parts.then_some((lasts, count)))?;
        Ok((!parts).then_some(lasts))
    }

    /// Runs the draft over rows whose features are rows `source` of `features`. After attention all
    /// rows continue, or only the `needed` ones (rows and their number), contiguously. The
    /// recurrent state goes to `work.states[state]`. Returns the input of the draft's vocabulary
    /// head, valid until the next pass.
    pub fn draft_pass<'a>(
        &self,
        draft: &'a RecurrentWeights,
        pass: Pass<'a>,
        features: &Buffer,
        source: Option<Slice<'_>>,
        state: usize,
        needed: Option<(Slice<'a>, usize)>,
    ) -> Result<Rows<'a>, DeviceError> {
        let Pass { rows, work, .. } = pass;
        let hidden = draft.spec.hidden();
        let out = self.rows(&work.states[state], hidden);
        let needed = needed.map(|(rows, count)| NeededRows { rows, count, stream: out });
        // The needed rows are copied from one buffer of states to the other.
        let stream = self.rows(&work.states[if needed.is_some() { 1 - state } else { state }], hidden);
        let input = self.join(draft, pass, FeatureRows { from: features, source }, stream)?;
        let kv = draft.spec.layer.attention.kv();
        let operands = LayerOperands {
            ahead: Ahead::Layout,
            weights: &draft.layer,
            input,
            cache: self.draft_layer_cache(kv, 0),
            rotations: self.draft_rotations.slice(),
            stream,
            next: None,
            needed,
        };
        let add = self.layer(pass, operands)?.added();
        let rows = needed.map_or(rows, |needed| needed.count);
        let Some(weight) = &draft.output_norm else {
            return self.kernels.add_rows(out, add, None, rows, hidden).map(|()| out);
        };
        let norm = self.output_norm(draft, weight, work, out, rows);
        self.kernels.rms_norm(RmsNorm { add, ..norm })?;
        Ok(norm.out)
    }

    /// Joins embeddings and features. Leaves the residual in `stream`, and returns the attention
    /// input of the layer.
    fn join<'a>(
        &self,
        draft: &'a RecurrentWeights,
        pass: Pass<'a>,
        features: FeatureRows<'_>,
        stream: Rows<'a>,
    ) -> Result<Input<'a>, DeviceError> {
        let Pass { rows, arrays, work, .. } = pass;
        let hidden = draft.spec.hidden();
        let bytes = self.element_bytes();
        let left = Rows { at: work.joined.slice(), stride: 2 * hidden };
        let right = Rows { at: work.joined.range(hidden * bytes..work.joined.bytes()), stride: 2 * hidden };
        let table = draft.embedding.as_ref().unwrap_or(&self.target.embedding).slice();
        let vocabulary = self.target.spec.vocabulary;
        let FeatureRows { from, source } = features;
        let normed = |norms: &JoinNorms, stream_is_normed: bool, zero_first: bool| {
            self.kernels.join_normed(JoinNormed {
                joined: work.joined.slice(),
                table,
                vocabulary,
                token: arrays.token.slice(),
                token_norm: norms.embedding.slice(),
                features: self.rows(from, hidden),
                source,
                feature_norm: norms.feature.slice(),
                stream,
                stream_is_normed,
                zero_first: zero_first.then(|| arrays.position.slice()),
                rows,
                width: hidden,
                epsilon: draft.layer.epsilon,
            })
        };
        match &draft.join {
            JoinWeights::NormedIntoAttention { norms, residual_is_normed } => {
                normed(norms, *residual_is_normed, false)?;
                // Attention reads both halves, so there is nothing to project and no norm after it.
                return Ok(left.into());
            }
            JoinWeights::Linear(projection) => {
                self.kernels.embed(left, table, arrays.token.slice(), rows, hidden, vocabulary)?;
                self.kernels.gather_rows(right, None, self.rows(from, hidden), source, rows, hidden)?;
                self.linear(work, stream.at, left, projection, rows)?;
            }
            JoinWeights::NormedLinear { norms, projection, zero_first_embedding } => {
                normed(norms, false, *zero_first_embedding)?;
                self.linear(work, stream.at, left, projection, rows)?;
            }
        }
        let Some(weight) = &draft.layer.input_norm else { return Ok(stream.into()) };
        let norm = RmsNorm {
            out: self.rows(&work.normed, hidden),
            stream,
            add: None,
            weight: weight.slice(),
            keep: None,
            source: None,
            rows,
            width: hidden,
            epsilon: draft.layer.epsilon,
        };
        self.norm_for(work, norm, draft.layer.attention.readers())
    }

    /// The norm after the draft's layer, for rows of its recurrent state: in place, or into
    /// `work.added`.
    fn output_norm<'a>(
        &self,
        draft: &RecurrentWeights,
        weight: &'a Buffer,
        work: &'a Activations,
        stream: Rows<'a>,
        rows: usize,
    ) -> RmsNorm<'a> {
        let hidden = draft.spec.hidden();
        RmsNorm {
            // A state that is fed back as it is must not be overwritten by its norm.
            out: if draft.spec.feedback == Feedback::Normed { stream } else { self.rows(&work.added, hidden) },
            stream,
            add: None,
            weight: weight.slice(),
            keep: None,
            source: None,
            rows,
            width: hidden,
            epsilon: draft.layer.epsilon,
        }
    }

    /// The input of the draft's vocabulary head, computed from rows of the recurrent state where
    /// [`draft_pass`](Self::draft_pass) has not just returned it. The rows are in `work.states[0]`,
    /// or are first gathered there from kept rows.
    pub fn proposing<'a>(
        &self,
        draft: &'a RecurrentWeights,
        work: &'a Activations,
        kept: Option<(Rows<'a>, Slice<'_>)>,
        rows: usize,
    ) -> Result<Rows<'a>, DeviceError> {
        let hidden = draft.spec.hidden();
        let state = self.rows(&work.states[0], hidden);
        let (stream, source) = kept.map_or((state, None), |(from, source)| (from, Some(source)));
        // States that are fed back normed have been normed by the pass.
        let Some(weight) = draft.output_norm.as_ref().filter(|_| draft.spec.feedback != Feedback::Normed) else {
            if source.is_some() {
                self.kernels.gather_rows(state, None, stream, source, rows, hidden)?;
            }
            return Ok(state);
        };
        let norm = self.output_norm(draft, weight, work, stream, rows);
        self.kernels.rms_norm(RmsNorm { keep: source.map(|_| state), source, ..norm })?;
        Ok(norm.out)
    }
}
