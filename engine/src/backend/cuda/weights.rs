//! Weights on the device, laid out once for the kernels that read them: query, key and value projections as one matrix,
//! gate and up as another.

use half::{bf16, f16};
use kernels::{
    device::{Buffer, Device, Element, Slice},
    launch::{Kernels, Linear, Rows},
};

use crate::{
    checkpoint::Weights,
    error::EngineError,
    model::{
        AttentionShape, HeadFacts, HeadKind, HeadSource, LayerFacts, Names, PREFIXES, TARGET_PREFIXES, TargetFacts,
    },
};

/// A linear layer: `[outputs, inputs]` and a bias.
#[derive(Debug)]
pub struct Projection {
    pub weight: Buffer,
    pub bias: Option<Buffer>,
    pub inputs: usize,
    pub outputs: usize,
}

impl Projection {
    /// What it computes of rows.
    pub fn linear<'a>(&'a self, y: Slice<'a>, x: Rows<'a>, rows: usize) -> Linear<'a> {
        let Self { weight, bias, inputs, outputs } = self;
        let bias = bias.as_ref().map(Buffer::slice);
        Linear {
            y,
            y_is_float: false,
            x,
            weight: weight.slice(),
            bias,
            rows,
            inputs: *inputs,
            outputs: *outputs,
            unscaled: None,
            awaited: None,
        }
    }
}

/// A decoder layer.
#[derive(Debug)]
pub struct LayerWeights {
    /// Before attention; an EAGLE-1/2 head has none.
    pub input_norm: Option<Buffer>,
    /// Queries, keys, values.
    pub qkv: Projection,
    /// Per-head norms of queries and keys (Qwen3).
    pub head_norms: Option<(Buffer, Buffer)>,
    pub output: Projection,
    pub post_attention_norm: Buffer,
    /// Gate, then up.
    pub gate_up: Projection,
    pub down: Projection,
}

/// A target.
#[derive(Debug)]
pub struct TargetWeights {
    pub facts: TargetFacts,
    pub embedding: Buffer,
    /// `None` where the embedding is the head too.
    pub head: Option<Buffer>,
    pub layers: Vec<LayerWeights>,
    pub norm: Buffer,
}

/// A draft head.
#[derive(Debug)]
pub struct HeadWeights {
    pub facts: HeadFacts,
    /// `None`: the target's.
    pub embedding: Option<Buffer>,
    /// `None`: as [`HeadFacts::head`] says.
    pub head: Option<Buffer>,
    /// Reduces features: of the captured layers (EAGLE-3), or of embedding and feature side by side (EAGLE-1/2).
    pub join: Projection,
    pub capture_norms: Vec<Buffer>,
    pub hidden_norm: Option<Buffer>,
    pub layer: LayerWeights,
    /// Before the head's own `lm_head` (EAGLE-3).
    pub norm: Option<Buffer>,
    /// int32: target tokens of the head's rows.
    pub tokens: Option<Buffer>,
}

/// Where tensors come from.
#[derive(Clone, Copy)]
pub enum WeightSource<'a> {
    /// A checkpoint.
    Checkpoint(&'a Weights),
    /// Random values of a shape: for measuring speed, which does not depend on them.
    Random {
        /// Whether query, key and value projections have a bias.
        biased: bool,
        /// Whether queries and keys are normed head by head.
        head_norms: bool,
    },
}

/// Puts tensors on a device in one element type.
pub struct Loader<'a> {
    kernels: &'a Kernels,
    source: WeightSource<'a>,
    prefixes: &'static [&'static str],
    /// Tensors made so far: each random one gets values of its own.
    count: std::cell::Cell<u64>,
}

impl<'a> Loader<'a> {
    /// A loader of a target's tensors, or of a head's.
    pub fn new(kernels: &'a Kernels, source: WeightSource<'a>, prefixes: &'static [&'static str]) -> Self {
        Self { kernels, source, prefixes, count: 0.into() }
    }

    /// Tensors of `[outputs, inputs]` one under the other.
    fn stacked(&self, parts: &[(String, usize)], inputs: usize) -> Result<Buffer, EngineError> {
        // The spread of an initialised layer: activations neither vanish nor overflow.
        self.placed(parts, &[inputs], |part| self.random(part, (3.0 / inputs as f32).sqrt()))
    }

    /// Vectors one behind the other; random ones are all of ones.
    fn vector(&self, parts: &[(String, usize)]) -> Result<Buffer, EngineError> {
        let element = self.kernels.element();
        self.placed(parts, &[], |part| {
            Ok(self.kernels.device().write(part, &element.encode(&vec![1.0; part.bytes() / element.bytes()]))?)
        })
    }

    /// Tensors with so many rows each, one behind the other; `row` is the shape of a row. `random` fills one where there
    /// is no checkpoint.
    fn placed(
        &self,
        parts: &[(String, usize)],
        row: &[usize],
        random: impl Fn(Slice<'_>) -> Result<(), EngineError>,
    ) -> Result<Buffer, EngineError> {
        let element = self.kernels.element();
        let device = self.kernels.device();
        let row_bytes = row.iter().product::<usize>() * element.bytes();
        let buffer = device.allocate(parts.iter().map(|(_, rows)| rows).sum::<usize>() * row_bytes)?;
        let mut start = 0;
        for (name, rows) in parts {
            let end = start + rows * row_bytes;
            let part = buffer.range(start..end);
            match &self.source {
                WeightSource::Checkpoint(weights) => {
                    let names = Names::new(weights, self.prefixes);
                    write(device, part, element, names.tensor(name, &[&[*rows][..], row].concat())?)?;
                }
                WeightSource::Random { .. } => random(part)?,
            }
            start = end;
        }
        Ok(buffer)
    }

    fn random(&self, part: Slice<'_>, bound: f32) -> Result<(), EngineError> {
        self.count.set(self.count.get() + 1);
        Ok(self.kernels.fill_random(part, bound, self.count.get())?)
    }

    /// Whether a tensor is there.
    fn has(&self, name: &str) -> bool {
        match &self.source {
            WeightSource::Checkpoint(weights) => Names::new(weights, self.prefixes).find(name).is_some(),
            WeightSource::Random { biased, head_norms } => {
                (*biased && name.ends_with("_proj.bias") && name.contains("self_attn") && !name.contains("o_proj"))
                    || (*head_norms && name.ends_with("_norm.weight"))
            }
        }
    }

    fn projection(&self, prefix: &str, parts: &[(&str, usize)], inputs: usize) -> Result<Projection, EngineError> {
        let named = |suffix: &str| -> Vec<(String, usize)> {
            parts.iter().map(|(name, outputs)| (format!("{prefix}{name}.{suffix}"), *outputs)).collect()
        };
        let biased = parts.iter().all(|(name, _)| self.has(&format!("{prefix}{name}.bias")));
        Ok(Projection {
            weight: self.stacked(&named("weight"), inputs)?,
            bias: if biased { Some(self.vector(&named("bias"))?) } else { None },
            inputs,
            outputs: parts.iter().map(|(_, outputs)| outputs).sum(),
        })
    }

    fn norm(&self, name: &str, length: usize) -> Result<Buffer, EngineError> {
        self.vector(&[(name.to_owned(), length)])
    }

    fn layer(&self, prefix: &str, facts: &LayerFacts, input_norm: bool) -> Result<LayerWeights, EngineError> {
        let LayerFacts { hidden, intermediate, attention, .. } = *facts;
        let AttentionShape { input, output, heads, key_value_heads, head_dim } = attention;
        let (query, kv) = (heads * head_dim, key_value_heads * head_dim);
        let (own, mlp) = (format!("{prefix}.self_attn."), format!("{prefix}.mlp."));
        let normed = self.has(&format!("{own}q_norm.weight")) && self.has(&format!("{own}k_norm.weight"));
        Ok(LayerWeights {
            input_norm: if input_norm {
                Some(self.norm(&format!("{prefix}.input_layernorm.weight"), hidden)?)
            } else {
                None
            },
            qkv: self.projection(&own, &[("q_proj", query), ("k_proj", kv), ("v_proj", kv)], input)?,
            head_norms: if normed {
                let norm = |name: &str| self.norm(&format!("{own}{name}.weight"), head_dim);
                Some((norm("q_norm")?, norm("k_norm")?))
            } else {
                None
            },
            output: self.projection(&own, &[("o_proj", output)], query)?,
            post_attention_norm: self.norm(&format!("{prefix}.post_attention_layernorm.weight"), hidden)?,
            gate_up: self.projection(&mlp, &[("gate_proj", intermediate), ("up_proj", intermediate)], hidden)?,
            down: self.projection(&mlp, &[("down_proj", hidden)], intermediate)?,
        })
    }
}

impl TargetWeights {
    /// Loads a target.
    pub fn load(kernels: &Kernels, source: WeightSource<'_>, facts: TargetFacts) -> Result<Self, EngineError> {
        let loader = Loader::new(kernels, source, &TARGET_PREFIXES);
        let hidden = facts.layer.hidden;
        let vocabulary = facts.vocabulary;
        Ok(Self {
            embedding: loader.stacked(&[("embed_tokens.weight".into(), vocabulary)], hidden)?,
            head: if facts.tied {
                None
            } else {
                Some(loader.stacked(&[("lm_head.weight".into(), vocabulary)], hidden)?)
            },
            layers: (0..facts.layers)
                .map(|at| loader.layer(&format!("layers.{at}"), &facts.layer, true))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("norm.weight", hidden)?,
            facts,
        })
    }

    /// Rows are tokens.
    pub fn head(&self) -> &Buffer {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

impl HeadWeights {
    /// Loads a head.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        facts: HeadFacts,
        target: &TargetWeights,
    ) -> Result<Self, EngineError> {
        let target_width = target.facts.layer.hidden;
        let loader = Loader::new(kernels, source, &PREFIXES);
        let hidden = facts.layer.hidden;
        let prefix = facts.prefix;
        let eagle3 = facts.kind == HeadKind::Eagle3;
        let width = if eagle3 { facts.capture.len() * target_width } else { 2 * hidden };
        let mut join = loader.projection("", &[("fc", hidden)], width)?;
        if !facts.join_bias {
            join.bias = None;
        } else if join.bias.is_none() {
            join.bias = Some(loader.norm("fc.bias", hidden)?);
        }
        let tokens = match &facts.tokens {
            Some(tokens) => {
                let tokens: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
                Some(kernels.device().upload(&tokens)?)
            }
            None => None,
        };
        let optional = |wanted: bool, name: String| -> Result<Option<Buffer>, EngineError> {
            if wanted { loader.norm(&name, hidden).map(Some) } else { Ok(None) }
        };
        let matrix = |wanted: bool, name: &str, rows: usize| -> Result<Option<Buffer>, EngineError> {
            if wanted { loader.stacked(&[(name.into(), rows)], hidden).map(Some) } else { Ok(None) }
        };
        Ok(Self {
            embedding: matrix(facts.own_embedding, "embed_tokens.weight", target.facts.vocabulary)?,
            head: match (&tokens, facts.head) {
                (Some(tokens), HeadSource::Target) => Some(gathered(kernels, target, tokens, facts.vocabulary)?),
                _ => matrix(facts.head == HeadSource::Own, "lm_head.weight", facts.vocabulary)?,
            },
            join,
            capture_norms: if facts.capture_norms {
                let norm = |at| loader.norm(&format!("fc_norm.{at}.weight"), target_width);
                (0..facts.capture.len()).map(norm).collect::<Result<_, _>>()?
            } else {
                Vec::new()
            },
            hidden_norm: optional(eagle3, format!("{prefix}.hidden_norm.weight"))?,
            layer: loader.layer(prefix, &facts.layer, eagle3)?,
            norm: optional(eagle3, "norm.weight".into())?,
            tokens,
            facts,
        })
    }
}

/// The rows of the target's head that belong to some tokens.
fn gathered(kernels: &Kernels, target: &TargetWeights, tokens: &Buffer, count: usize) -> Result<Buffer, EngineError> {
    let width = target.facts.layer.hidden;
    let out = kernels.device().allocate(count * width * kernels.element().bytes())?;
    let (to, from) = (Rows { at: out.slice(), stride: width }, Rows { at: target.head().slice(), stride: width });
    kernels.gather_rows(to, None, from, Some(tokens.slice()), count, width)?;
    Ok(out)
}

/// Copies a tensor to the device, converted where its type is another.
fn write(device: &Device, to: Slice<'_>, element: Element, (bytes, dtype): (&[u8], &str)) -> Result<(), EngineError> {
    let same = matches!((element, dtype), (Element::F16, "F16") | (Element::BF16, "BF16") | (Element::F32, "F32"));
    if same {
        return Ok(device.write(to, bytes)?);
    }
    // Piece by piece: a converted copy of a large tensor needs no memory of its size.
    const PIECE: usize = 1 << 22;
    let width = if dtype == "F32" { 4 } else { 2 };
    let mut start = 0;
    for piece in bytes.chunks(PIECE * width) {
        let values: Vec<f32> = match dtype {
            "F16" => piece.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            "BF16" => piece.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            _ => piece.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        };
        let encoded = element.encode(&values);
        device.write(to.range(start..start + encoded.len()), &encoded)?;
        start += encoded.len();
    }
    Ok(())
}
