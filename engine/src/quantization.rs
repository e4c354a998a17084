//! Decides which layers are kept in FP8: the ones that a checkpoint stores in FP8, and the ones
//! that are quantised at load time. Experts that a checkpoint stores in MXFP4 are kept in it.
//!
//! The matrices of attention and of feed-forward blocks, including experts, are quantised, in the
//! target and in its draft. Embeddings, vocabulary heads, norms, routers and the projection that
//! joins a draft's inputs keep their type, as in SGLang. Whether the activations that these
//! matrices multiply are quantised too is the mode of the process ([`Fp8Compute`]). Speculation is
//! lossless with respect to the quantised target.

mod compute;

use kernels::reference::{FP8_BLOCK, Fp8Rows, Fp8Scales};

pub use self::compute::{Fp8Compute, computed};
use self::compute::{in_words, rows_of};
use crate::{
    checkpoint::Tensors,
    error::EngineError,
    spec::{
        AttentionTensors, DraftSpec, FfnSpec, FfnTensors, GatedTensors, GroupedQuery, LayerFormats, LayerSpec,
        LayerTensors, Pairing, RecurrentSpec, TargetSpec, TensorSpec, WeightFormat,
    },
};

/// How weights are quantised at load time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    /// To e4m3, with one scale per row of a matrix.
    Fp8,
}

/// The number of inputs of an FP8 layer is a multiple of this, the size of one copy.
const INPUTS: usize = 16;

impl Quantization {
    /// Parses a value of SGLang's `--quantization`; `None` for the names that mean no quantisation.
    ///
    /// # Errors
    /// When the quantisation is not supported.
    pub fn parse(flag: &str, name: &str) -> Result<Option<Self>, EngineError> {
        match name {
            "fp8" => Ok(Some(Self::Fp8)),
            "unquant" | "none" => Ok(None),
            other => Err(EngineError::Configuration(format!(
                "{flag} {other} is not supported; this engine quantises to fp8 (e4m3, one scale per row), and reads \
                 FP8 checkpoints without the flag"
            ))),
        }
    }

    /// Its name in `--quantization`.
    pub fn name(self) -> &'static str {
        "fp8"
    }
}

/// The source of matrices.
#[derive(Clone, Copy, Debug)]
pub enum StoredIn<'a> {
    /// A checkpoint.
    Checkpoint(Tensors<'a>),
    /// No source: values are random.
    Nowhere,
}

/// A target with the formats of its layers: as stored, or quantised.
///
/// # Errors
/// When the scales of a matrix are missing or have the wrong shape, or when products in FP8 are
/// wanted and a part of a layer or the whole target cannot have them.
pub fn quantised_target(
    mut target: TargetSpec,
    stored: StoredIn<'_>,
    by: Option<Quantization>,
    compute: Fp8Compute,
) -> Result<TargetSpec, EngineError> {
    for (at, layer) in target.layers.iter_mut().enumerate() {
        layer.formats = formats(layer, &TargetSpec::layer_prefix(at), stored, by, compute)?;
    }
    if compute == Fp8Compute::Products && computed(&target.layers) != Some(compute) {
        return Err(EngineError::Configuration(
            "--fp8-compute products: no layer of the target has weights in FP8: remove it, or quantise them with \
             --quantization fp8"
                .into(),
        ));
    }
    Ok(target)
}

/// A draft with the formats of its layers: as stored, or quantised.
///
/// # Errors
/// As [`quantised_target`].
pub fn quantised_draft(
    mut draft: DraftSpec,
    stored: StoredIn<'_>,
    by: Option<Quantization>,
    compute: Fp8Compute,
) -> Result<DraftSpec, EngineError> {
    match &mut draft {
        DraftSpec::Recurrent(draft) => {
            draft.layer.formats = formats(&draft.layer, &draft.tensors.layer_prefix(), stored, by, compute)?;
        }
        // The projection of a block head's context to keys and values is a copy in 16 bits on a
        // GPU.
        DraftSpec::Block(block) => {
            let compute = Fp8Compute::Weights;
            for at in 0..block.layers.len() {
                let prefix = block.layer_prefix(at);
                block.layers[at].layer.formats = formats(&block.layers[at].layer, &prefix, stored, by, compute)?;
            }
        }
        DraftSpec::Model(model) => {
            for (at, layer) in model.layers.iter_mut().enumerate() {
                layer.formats = formats(layer, &TargetSpec::layer_prefix(at), stored, by, compute)?;
            }
        }
        DraftSpec::Text(_) => {}
    }
    Ok(draft)
}

fn formats(
    layer: &LayerSpec,
    prefix: &str,
    stored: StoredIn<'_>,
    by: Option<Quantization>,
    compute: Fp8Compute,
) -> Result<LayerFormats, EngineError> {
    let LayerTensors { attention, ffn, .. } = layer.tensors(prefix);
    let (of_attention, aligned) = attention_matrices(layer, &attention);
    let attention = format(&of_attention, stored, by, aligned)?;
    let (of_ffn, aligned) = match &ffn {
        FfnTensors::Dense(block) => (matrices(block).to_vec(), is_aligned(block.gate.outputs())),
        FfnTensors::Experts(experts) => {
            let aligned =
                is_aligned(layer.hidden) && layer.ffn.experts().is_some_and(|spec| is_aligned(spec.intermediate));
            (experts.experts.iter().chain(&experts.shared).flat_map(matrices).collect(), aligned)
        }
    };
    let ffn = match format(&of_ffn, stored, by, aligned)? {
        // A shared expert is split into several of the others' width, which would cut its blocks.
        WeightFormat::Fp8(scales) if scales != Fp8Scales::Channels && cuts_blocks(&layer.ffn) => WeightFormat::Plain,
        format => format,
    };
    Ok(LayerFormats {
        attention,
        ffn,
        attention_rows: rows_of(&of_attention, attention, stored, compute)?,
        ffn_rows: rows_of(&of_ffn, ffn, stored, compute)?,
    })
}

/// The matrices of attention that may be in FP8, and whether concatenating them keeps rows in their
/// blocks.
fn attention_matrices<'t>(layer: &LayerSpec, tensors: &'t AttentionTensors) -> (Vec<&'t TensorSpec>, bool) {
    match tensors {
        AttentionTensors::Grouped(grouped) => {
            let heads = [&grouped.query.weight, &grouped.key.weight, &grouped.value.weight];
            let aligned = layer.attention.grouped().is_some_and(|spec| heads_stay_in_blocks(spec, heads));
            ([heads[0], heads[1], heads[2], &grouped.output.weight].to_vec(), aligned)
        }
        AttentionTensors::Latent(latent) => {
            let matrices = latent.kept_matrices();
            // The latent vector's rows follow those of the first projection.
            let aligned = matrices[0].shape.first().is_some_and(|rows| is_aligned(*rows));
            (matrices, aligned)
        }
        AttentionTensors::Delta(delta) => (delta.large_matrices().to_vec(), is_aligned(delta.mixed.outputs())),
    }
}

/// The common format of matrices, some of which are concatenated. `aligned` is whether each of
/// these except the last has a number of rows that is a multiple of a block. If not all are
/// quantised in the same way, none is kept in FP8: all are dequantised.
fn format(
    matrices: &[&TensorSpec],
    stored: StoredIn<'_>,
    by: Option<Quantization>,
    aligned: bool,
) -> Result<WeightFormat, EngineError> {
    let is_mxfp4 = |matrix: &&TensorSpec| match stored {
        StoredIn::Checkpoint(tensors) => tensors.is_mxfp4(&matrix.name),
        StoredIn::Nowhere => matrix.format == WeightFormat::Mxfp4,
    };
    if !matrices.is_empty() && matrices.iter().all(is_mxfp4) {
        return Ok(WeightFormat::Mxfp4);
    }
    let mut common = None;
    for matrix in matrices {
        let scales = match stored {
            StoredIn::Checkpoint(tensors) => tensors.fp8_scales(&matrix.name)?,
            StoredIn::Nowhere => matrix.format.fp8(),
        };
        let whole = matrix.shape.last().is_some_and(|inputs| inputs.is_multiple_of(INPUTS));
        // Kernels multiply the matrices of a part together, so one format must fit all of them.
        if !whole || *common.get_or_insert(scales) != scales {
            return Ok(WeightFormat::Plain);
        }
    }
    Ok(match (common.flatten(), by) {
        (None, None) => WeightFormat::Plain,
        (None, Some(Quantization::Fp8)) => WeightFormat::Fp8(Fp8Scales::Channels),
        // Rows are reordered or joined across blocks, so each row gets a copy of its block's
        // scales.
        (Some(Fp8Scales::Blocks), _) if !aligned => WeightFormat::Fp8(Fp8Scales::RowBlocks),
        (Some(scales), _) => WeightFormat::Fp8(scales),
    })
}

fn matrices(block: &GatedTensors) -> [&TensorSpec; 3] {
    [&block.gate.weight, &block.up.weight, &block.down.weight]
}

fn is_aligned(rows: usize) -> bool {
    rows.is_multiple_of(FP8_BLOCK)
}

/// Whether rows of queries, keys and values stay in their blocks when they are concatenated and
/// reordered for the kernels.
fn heads_stay_in_blocks(spec: &GroupedQuery, [query, key, _]: [&TensorSpec; 3]) -> bool {
    let reordered = spec.rope.dims != spec.head_dim || spec.rope.pairing != Pairing::Halves;
    let together = [query, key].into_iter().all(|matrix| matrix.shape.first().is_some_and(|rows| is_aligned(*rows)));
    // Gates of outputs are rows between those of queries, which they leave.
    together && !spec.output_gate && (!reordered || FP8_BLOCK.is_multiple_of(spec.head_dim))
}

fn cuts_blocks(ffn: &FfnSpec) -> bool {
    ffn.experts().is_some_and(|experts| {
        experts.shared.is_some_and(|shared| shared > experts.intermediate) && !is_aligned(experts.intermediate)
    })
}

/// A note on a target's or a draft's weights if some are in FP8 or MXFP4: which parts of how many
/// layers, and whether activations are quantised.
pub fn described<'l>(layers: impl IntoIterator<Item = &'l LayerSpec>) -> Option<String> {
    let (mut all, mut attention, mut ffn, mut packed) = (0, 0, 0, 0);
    let mut rows: Vec<Fp8Rows> = Vec::new();
    for layer in layers {
        all += 1;
        packed += usize::from(layer.formats.ffn == WeightFormat::Mxfp4);
        attention += usize::from(layer.formats.attention.fp8().is_some());
        ffn += usize::from(layer.formats.ffn.fp8().is_some());
        let of_layer = [layer.formats.attention_rows, layer.formats.ffn_rows].into_iter().flatten();
        of_layer.for_each(|layout| {
            if !rows.contains(&layout) {
                rows.push(layout)
            }
        });
    }
    let packed = (packed > 0).then(|| format!("mxfp4 experts in {packed} of {all} layers"));
    let what = match rows.iter().map(|layout| in_words(*layout)).collect::<Vec<_>>() {
        dequantised if dequantised.is_empty() => "fp8 weights (e4m3)".to_owned(),
        scales => format!("fp8 weights and activations (e4m3, activations with {})", scales.join(" or ")),
    };
    let fp8 = match (attention, ffn) {
        (0, 0) => None,
        (some, other) if some == all && other == all => Some(what),
        _ => {
            let parts = format!("in the attention of {attention} and the feed-forward part of {ffn} of {all} layers");
            Some(format!("{what} {parts}"))
        }
    };
    match (packed, fp8) {
        (Some(packed), Some(fp8)) => Some(format!("{packed}, {fp8}")),
        (packed, fp8) => packed.or(fp8),
    }
}

impl LayerSpec {
    /// The same with all matrices in the type that the engine computes in, for devices that support
    /// no other format.
    #[must_use]
    pub fn in_plain(&self) -> Self {
        Self { formats: LayerFormats::default(), ..self.clone() }
    }
}

impl TargetSpec {
    /// The same with all matrices in the type that the engine computes in.
    #[must_use]
    pub fn in_plain(&self) -> Self {
        Self { layers: self.layers.iter().map(LayerSpec::in_plain).collect(), ..self.clone() }
    }
}

impl RecurrentSpec {
    /// The same with all matrices in the type that the engine computes in.
    #[must_use]
    pub fn in_plain(&self) -> Self {
        Self { layer: self.layer.in_plain(), ..self.clone() }
    }
}
