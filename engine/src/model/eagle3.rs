//! The EAGLE-3 head (arXiv 2503.01840): `fc` reduces the features of several layers, one decoder layer sees normed
//! embedding and normed feature side by side, and its own norm and head propose tokens of a hot vocabulary.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, Rope, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    draft::{Draft, HeadKind, PREFIXES},
    eagle2::side_by_side,
    feed_forward::FeedForward,
    llama::{Llama, Pass, add, attention_shape, check_activation, embed, malformed, required},
    names::Names,
    rope::rope,
};
use crate::{
    checkpoint::{Folder, Weights},
    error::EngineError,
};

/// A loaded head.
#[derive(Debug)]
pub struct Eagle3 {
    embedding: Arc<Matrix>,
    head: Arc<Matrix>,
    /// Target tokens of the draft's; `None` where the two vocabularies are one.
    tokens: Option<Vec<u32>>,
    capture: Vec<usize>,
    /// EAGLE-3.1: a norm on each captured layer before `fc`.
    capture_norms: Option<Vec<Vec<f32>>>,
    join: Matrix,
    input_norm: Vec<f32>,
    hidden_norm: Vec<f32>,
    attention: Attention,
    post_attention_norm: Vec<f32>,
    feed_forward: FeedForward,
    norm: Vec<f32>,
    /// vLLM speculators: the residual is the normed feature.
    norm_before_residual: bool,
    /// EAGLE-3.1: the recurrent state is the normed output.
    norm_output: bool,
    rope: Rope,
    epsilon: f32,
}

impl Eagle3 {
    /// Loads a head for a target.
    ///
    /// # Errors
    /// When it does not fit the target, asks for a variant that is not implemented, or a tensor is missing or misshapen.
    pub fn load(folder: &Folder, weights: &Weights, target: &Llama) -> Result<Self, EngineError> {
        let config = &folder.config;
        check_activation(folder, config)?;
        check_variant(folder)?;
        let hidden = required(folder, config.hidden_size, "hidden_size")?;
        let target_hidden = config.target_hidden_size.unwrap_or(hidden);
        if target_hidden != target.hidden_size() {
            let found = target.hidden_size();
            return Err(malformed(
                folder,
                format!("the head expects a target of hidden size {target_hidden}, this target has {found}"),
            ));
        }
        let intermediate = required(folder, config.intermediate_size, "intermediate_size")?;
        let shape = attention_shape(folder, 2 * hidden, hidden)?;
        let epsilon = config.rms_norm_eps.unwrap_or(1e-6) as f32;
        let names = Names::new(weights, &PREFIXES);
        let layer = if names.find("midlayer.self_attn.q_proj.weight").is_some() { "midlayer" } else { "layers.0" };
        let norm = |name: &str| names.vector(&format!("{layer}.{name}.weight"), hidden);
        let capture = capture(folder, target.layer_count())?;
        let capture_norms = match config.fc_norm {
            Some(true) => {
                let norms = (0..capture.len()).map(|at| names.vector(&format!("fc_norm.{at}.weight"), target_hidden));
                Some(norms.collect::<Result<_, _>>()?)
            }
            _ => None,
        };
        let embedding = embedding(&names, target, hidden)?;
        let (head, tokens) = head(folder, &names, target, &embedding)?;
        Ok(Self {
            embedding,
            head,
            tokens,
            capture_norms,
            join: names.matrix("fc.weight", hidden, capture.len() * target_hidden)?,
            capture,
            input_norm: norm("input_layernorm")?,
            hidden_norm: norm("hidden_norm")?,
            attention: Attention::load(&names, &format!("{layer}.self_attn"), shape, epsilon)?,
            post_attention_norm: norm("post_attention_layernorm")?,
            feed_forward: FeedForward::load(&names, &format!("{layer}.mlp"), hidden, intermediate)?,
            norm: names.vector("norm.weight", hidden)?,
            norm_before_residual: config.norm_before_residual.unwrap_or(false),
            norm_output: config.norm_output.unwrap_or(false),
            rope: rope(config, shape.head_dim, folder.path())?,
            epsilon,
        })
    }
}

impl Draft for Eagle3 {
    fn kind(&self) -> HeadKind {
        HeadKind::Eagle3
    }

    fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    fn capture(&self) -> &[usize] {
        &self.capture
    }

    fn features(&self, pass: &Pass) -> Vec<f32> {
        let Some(norms) = &self.capture_norms else {
            return linear(&pass.captured, &self.join, None);
        };
        let width = norms.first().map_or(0, Vec::len);
        let layers = pass.captured.chunks_exact(width).zip(norms.iter().cycle());
        let normed: Vec<f32> = layers.flat_map(|(x, norm)| rms_norm(x, norm, self.epsilon)).collect();
        linear(&normed, &self.join, None)
    }

    fn forward(&self, tokens: &[u32], features: &[f32], rows: Rows<'_>, cache: &mut KeyValues) -> Vec<f32> {
        let embedded = rms_norm(&embed(&self.embedding, tokens), &self.input_norm, self.epsilon);
        let normed = rms_norm(features, &self.hidden_norm, self.epsilon);
        let joined = side_by_side(&embedded, &normed, self.hidden_size());
        let mut x = if self.norm_before_residual { normed } else { features.to_vec() };
        add(&mut x, &self.attention.forward(&joined, rows, &self.rope, cache));
        let normed = rms_norm(&x, &self.post_attention_norm, self.epsilon);
        add(&mut x, &self.feed_forward.forward(&normed));
        if self.norm_output { rms_norm(&x, &self.norm, self.epsilon) } else { x }
    }

    fn logits(&self, recurrent: &[f32]) -> Vec<f32> {
        if self.norm_output {
            linear(recurrent, &self.head, None)
        } else {
            linear(&rms_norm(recurrent, &self.norm, self.epsilon), &self.head, None)
        }
    }

    fn vocab_size(&self) -> usize {
        self.head.outputs()
    }

    fn token(&self, index: usize) -> u32 {
        self.tokens.as_ref().map_or(index as u32, |tokens| tokens[index])
    }

    fn cache(&self, rows: usize) -> KeyValues {
        self.attention.cache(rows)
    }
}

/// Variants whose tensors this file would read wrongly are refused rather than guessed.
fn check_variant(folder: &Folder) -> Result<(), EngineError> {
    let config = &folder.config;
    let eagle = config.eagle_config.clone().unwrap_or_default();
    let feature = if config.norm_before_fc == Some(true) {
        "norm_before_fc (EAGLE-3.1)"
    } else if eagle.use_aux_hidden_state == Some(false) {
        "eagle_config.use_aux_hidden_state = false"
    } else {
        return Ok(());
    };
    Err(EngineError::Unsupported {
        path: folder.path().to_owned(),
        feature: feature.into(),
        hint: "supported are EAGLE-3 heads on several captured layers, with fc_norm, norm_output and \
               norm_before_residual"
            .into(),
    })
}

/// The captured layers, as places where the residual stream enters. A configuration names layers by their output, so
/// its ids move by one (SGLang `spec_aux_hidden_state.py`); the default is {2, L/2, L − 3} on entry.
fn capture(folder: &Folder, layers: usize) -> Result<Vec<usize>, EngineError> {
    let given = folder.config.eagle_config.as_ref().and_then(|config| config.eagle_aux_hidden_state_layer_ids.as_ref());
    let places: Vec<usize> = match given {
        Some(ids) => ids.iter().map(|id| id.saturating_add(1)).collect(),
        None if layers >= 4 => vec![2, layers / 2, layers - 3],
        None => {
            return Err(malformed(
                folder,
                format!(
                    "a target of {layers} layers has no default layers to capture: \
                         set eagle_config.eagle_aux_hidden_state_layer_ids"
                ),
            ));
        }
    };
    if places.is_empty() || places.iter().any(|place| *place > layers) {
        return Err(malformed(
            folder,
            format!("eagle_aux_hidden_state_layer_ids {given:?} name layers that a target of {layers} layers lacks"),
        ));
    }
    Ok(places)
}

/// The head's own embedding where it has one that differs from the target's, else the target's.
fn embedding(names: &Names<'_>, target: &Llama, hidden: usize) -> Result<Arc<Matrix>, EngineError> {
    if hidden == target.hidden_size() && names.find("embed_tokens.weight").is_none() {
        return Ok(target.embedding.clone());
    }
    let own = names.matrix("embed_tokens.weight", target.vocab_size(), hidden)?;
    // Most heads that ship one ship a copy: one in memory is enough.
    Ok(if own == *target.embedding { target.embedding.clone() } else { Arc::new(own) })
}

/// The head and the target tokens of its rows.
fn head(
    folder: &Folder,
    names: &Names<'_>,
    target: &Llama,
    embedding: &Arc<Matrix>,
) -> Result<(Arc<Matrix>, Option<Vec<u32>>), EngineError> {
    let hidden = embedding.inputs();
    let vocabulary = target.vocab_size();
    let rows = folder.config.draft_vocab_size.unwrap_or(vocabulary);
    if rows == 0 || rows > vocabulary {
        return Err(malformed(folder, format!("draft_vocab_size is {rows}, the target has {vocabulary} tokens")));
    }
    let absent = names.find("lm_head.weight").is_none() && rows == vocabulary;
    let head = if absent && folder.config.tie_word_embeddings == Some(true) {
        embedding.clone()
    } else if absent && hidden == target.hidden_size() {
        target.head.clone()
    } else {
        Arc::new(names.matrix("lm_head.weight", rows, hidden)?)
    };
    if rows == vocabulary {
        return Ok((head, None));
    }
    let name = names.find("d2t").unwrap_or_else(|| "d2t".into());
    let offsets = names.weights().integers(&name, rows)?;
    // d2t holds offsets: the target's token is the draft's plus its entry.
    let tokens = offsets.iter().enumerate().map(|(draft, offset)| {
        let token = (draft as i64).checked_add(*offset).filter(|token| (0..vocabulary as i64).contains(token));
        token.map(|token| token as u32).ok_or_else(|| EngineError::Malformed {
            path: folder.path().to_owned(),
            reason: format!("d2t[{draft}] = {offset} leads outside the target's {vocabulary} tokens"),
        })
    });
    Ok((head, Some(tokens.collect::<Result<_, _>>()?)))
}
