//! Rows of a block head in the element type: `cuda/block_rows.cu`.

use super::{Kernels, RotaryRows, Rows, address, check_ints, grid, int};
use crate::device::{Arg, DeviceError, KernelFile, Slice, Split};

pub(super) const FILE: KernelFile =
    KernelFile { name: "block_rows.cu", text: include_str!("../../cuda/block_rows.cu"), split: Split::Shared };

/// Operands of [`Kernels::write_context`].
#[derive(Clone, Copy, Debug)]
pub struct ContextRows<'a> {
    /// `[rows, layers, 2, kv_heads · head_dim]`: keys and values of each layer.
    pub kv: Slice<'a>,
    /// The rotation of each row.
    pub rotary: RotaryRows<'a>,
    /// Cache row of each row, int32; below 0 for none.
    pub write: Slice<'a>,
    /// `[layers, 2, cache rows, kv_heads · head_dim]`.
    pub cache: Slice<'a>,
    /// Norms of the layers' keys, `[layers, head_dim]`, with their epsilon.
    pub key_norms: Option<(Slice<'a>, f32)>,
    /// Rows.
    pub rows: usize,
    /// Layers.
    pub layers: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// W1 of a Markov head, `[vocabulary, rank]`, and the tokens of rows.
#[derive(Clone, Copy, Debug)]
pub struct MarkovTokens<'a> {
    /// W1.
    pub embedding: Slice<'a>,
    /// Its rows.
    pub vocabulary: usize,
    /// Width of the latent vector.
    pub rank: usize,
    /// int32 `[rows]`.
    pub token: Slice<'a>,
}

/// States of a recurrent Markov head.
#[derive(Clone, Copy, Debug)]
pub struct MarkovStates<'a> {
    /// `[…, rank]`.
    pub at: Slice<'a>,
    /// The state of each row, int32 `[rows]`.
    pub source: Slice<'a>,
}

/// The order of a cell's inputs.
#[derive(Clone, Copy, Debug)]
pub enum MarkovOrder<'a> {
    /// The hidden row, then the token's embedding.
    HiddenFirst,
    /// The state (zeros if there is none yet), the token's embedding, the hidden row.
    StateFirst(Option<MarkovStates<'a>>),
}

impl Kernels {
    /// Writes the keys and values that a block head keeps of rows to the caches of all its layers.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn write_context(&self, context: ContextRows<'_>) -> Result<(), DeviceError> {
        let ContextRows { kv, rotary, write, cache, key_norms, rows, layers, kv_heads, head_dim } = context;
        let (width, element) = (kv_heads * head_dim, self.element.bytes());
        self.check_rows(Rows { at: kv, stride: layers * 2 * width }, rows, layers * 2 * width)?;
        if layers == 0 || !head_dim.is_multiple_of(4) || !cache.bytes().is_multiple_of(layers * 2 * width * element) {
            return Err(DeviceError::Shape(format!(
                "{layers} layers with heads of {head_dim} elements have no such cache"
            )));
        }
        rotary.check(rows, head_dim)?;
        check_ints(write, rows)?;
        let (norms, epsilon) = key_norms.unwrap_or((Slice::NONE, 0.0));
        if key_norms.is_some() {
            norms.check(layers * head_dim * element)?;
        }
        let plane = cache.bytes() / (layers * 2 * element);
        let kernel = self.kernel(FILE, "write_context")?;
        let [table, positions, position] = rotary.arguments();
        let arguments = [
            address(kv),
            table,
            positions,
            position,
            address(write),
            address(cache),
            Arg::Long(2 * plane as u64),
            Arg::Long(plane as u64),
            address(norms),
            Arg::Float(epsilon),
            int(layers),
            int(kv_heads),
            int(head_dim),
        ];
        let blocks = [(layers * 2 * kv_heads).div_ceil(4), rows, 1];
        // SAFETY: lengths are checked above; cache rows are the caller's layout kernels', which
        // stay within the cache.
        unsafe { self.device.launch(&kernel, grid(blocks, 128, 0), &arguments) }
    }

    /// The inputs of a Markov head's cell, `[rows, inputs]`. The hidden row of row r is row
    /// `base[r]`, of `width` elements.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn markov_inputs(
        &self,
        out: Slice<'_>,
        tokens: MarkovTokens<'_>,
        hidden: (Rows<'_>, usize),
        base: Slice<'_>,
        order: MarkovOrder<'_>,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let (MarkovTokens { embedding, vocabulary, rank, token }, (hidden, width)) = (tokens, hidden);
        let (has_state, states) = match order {
            MarkovOrder::HiddenFirst => (false, None),
            MarkovOrder::StateFirst(states) => (true, states),
        };
        let inputs = width + rank * if has_state { 2 } else { 1 };
        out.check(rows * inputs * self.element.bytes())?;
        self.check_rows(hidden, 1, width)?;
        tokens.check(self, rows)?;
        check_ints(base, rows)?;
        let (states, source) = self.check_states(states, rank, rows)?;
        let kernel = self.kernel(FILE, "markov_inputs")?;
        let arguments = [
            address(out),
            address(states),
            address(source),
            Arg::Int(has_state.into()),
            address(embedding),
            int(vocabulary),
            address(token),
            address(hidden.at),
            int(hidden.stride),
            address(base),
            Arg::Int((!has_state).into()),
            int(rank),
            int(width),
        ];
        // SAFETY: lengths are checked above; the kernel clamps tokens to the vocabulary; rows of
        // `base` and of the states come from the caller's layout kernels and are within bounds.
        unsafe { self.device.launch(&kernel, grid([rows, 1, 1], 256, 0), &arguments) }
    }

    /// The latent vectors of a gated Markov head, from its gates: both `[rows, rank]`.
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn markov_gate(
        &self,
        latent: Slice<'_>,
        gates: Slice<'_>,
        tokens: MarkovTokens<'_>,
        rows: usize,
    ) -> Result<(), DeviceError> {
        let MarkovTokens { embedding, vocabulary, rank, token } = tokens;
        for values in [latent, gates] {
            values.check(rows * rank * self.element.bytes())?;
        }
        tokens.check(self, rows)?;
        let kernel = self.kernel(FILE, "markov_gate")?;
        let arguments =
            [address(latent), address(gates), address(embedding), int(vocabulary), address(token), int(rank)];
        // SAFETY: lengths are checked above; the kernel clamps tokens to the vocabulary.
        unsafe { self.device.launch(&kernel, grid([rank.div_ceil(256), rows, 1], 256, 0), &arguments) }
    }

    /// The latent vectors of a recurrent Markov head and its states after rows, both
    /// `[rows, rank]`, from the output of its cell, `[rows, 3 · rank]`, and the states before
    /// (zeros if there are none).
    ///
    /// # Errors
    /// When a buffer is too short, or the device fails.
    pub fn markov_cell(
        &self,
        latent: Slice<'_>,
        state: Slice<'_>,
        joint: Slice<'_>,
        before: Option<MarkovStates<'_>>,
        rank: usize,
        rows: usize,
    ) -> Result<(), DeviceError> {
        for (values, width) in [(latent, rank), (state, rank), (joint, 3 * rank)] {
            values.check(rows * width * self.element.bytes())?;
        }
        let (states, source) = self.check_states(before, rank, rows)?;
        let kernel = self.kernel(FILE, "markov_cell")?;
        let arguments = [address(latent), address(state), address(joint), address(states), address(source), int(rank)];
        // SAFETY: lengths are checked above; rows of the states come from the caller's layout
        // kernels and are within bounds.
        unsafe { self.device.launch(&kernel, grid([rank.div_ceil(256), rows, 1], 256, 0), &arguments) }
    }

    /// States and the rows that are read of them.
    fn check_states<'a>(
        &self,
        states: Option<MarkovStates<'a>>,
        rank: usize,
        rows: usize,
    ) -> Result<(Slice<'a>, Slice<'a>), DeviceError> {
        let Some(MarkovStates { at, source }) = states else { return Ok((Slice::NONE, Slice::NONE)) };
        at.check(rank * self.element.bytes())?;
        check_ints(source, rows)?;
        Ok((at, source))
    }
}

impl MarkovTokens<'_> {
    fn check(&self, kernels: &Kernels, rows: usize) -> Result<(), DeviceError> {
        self.embedding.check(self.vocabulary * self.rank * kernels.element.bytes())?;
        check_ints(self.token, rows)
    }
}
