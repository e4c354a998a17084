//! What every draft head can do, and which one a checkpoint holds.

use std::fmt;

use kernels::reference::KeyValues;

use super::{
    attention::Rows,
    eagle2::Eagle2,
    eagle3::Eagle3,
    facts::read_head,
    llama::{Llama, Pass},
    names::Names,
};
use crate::{
    checkpoint::{Folder, Weights, read_token_map},
    error::EngineError,
    options::EngineOptions,
    spec::{DraftSpec, Join, TargetSpec},
};

/// A family of draft heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadKind {
    /// EAGLE-1/2: one feature, the target's own head.
    Eagle,
    /// EAGLE-3: features of several layers, its own head over a hot vocabulary.
    Eagle3,
}

/// A draft head: proposes tokens from the target's features and from its own.
///
/// Row i consumes token i + 1 and the feature of position i, rotated at position i, and predicts token i + 2.
pub trait Draft: fmt::Debug + Send + Sync {
    /// What it is.
    fn spec(&self) -> &DraftSpec;

    /// Width of a feature and of the recurrent state.
    fn hidden_size(&self) -> usize;

    /// The target's layers on whose entry the residual stream is captured; see [`Llama::forward`].
    fn capture(&self) -> &[usize];

    /// Features `[rows, hidden]` from a pass of the target.
    fn features(&self, pass: &Pass) -> Vec<f32>;

    /// Runs rows through the head. `features` and the recurrent state that comes back are `[rows, hidden]`.
    fn forward(&self, tokens: &[u32], features: &[f32], rows: Rows<'_>, cache: &mut KeyValues) -> Vec<f32>;

    /// Logits over the draft's vocabulary of rows of recurrent state.
    fn logits(&self, recurrent: &[f32]) -> Vec<f32>;

    /// Tokens that the draft can propose.
    fn vocab_size(&self) -> usize;

    /// The target's token of one of the draft's.
    fn token(&self, index: usize) -> u32 {
        self.spec().tokens.as_ref().map_or(index as u32, |tokens| tokens[index])
    }

    /// An empty cache of the head's one layer.
    fn cache(&self, rows: usize) -> KeyValues;
}

/// Loads the head of a folder for a target, as [`read_draft`] finds it.
///
/// # Errors
/// As [`read_draft`], and when a tensor is missing or misshapen.
pub fn load_draft(folder: &Folder, target: &Llama, options: &EngineOptions) -> Result<Box<dyn Draft>, EngineError> {
    let weights = folder.weights()?;
    let spec = read_draft(folder, &weights, target.spec(), options)?;
    Ok(match spec.join {
        Join::Linear { .. } => Box::new(Eagle2::load(&weights, spec, target)?),
        Join::NormedIntoAttention { .. } => Box::new(Eagle3::load(&weights, spec, target)?),
        Join::NormedLinear { .. } => {
            return Err(EngineError::Unsupported {
                path: folder.path().to_owned(),
                feature: "an MTP layer".into(),
                hint: "supported are EAGLE-1/2 and EAGLE-3 heads".into(),
            });
        }
    })
}

/// What a folder's head for a target is. The options' algorithm, SGLang's name, is checked against the tensors; their
/// token map restricts what the head proposes.
///
/// # Errors
/// When the head is none that this engine knows, does not fit the target, or contradicts the options, or the token map
/// cannot be read.
pub fn read_draft(
    folder: &Folder,
    weights: &Weights,
    target: &TargetSpec,
    options: &EngineOptions,
) -> Result<DraftSpec, EngineError> {
    let kind = kind(folder, weights)?;
    if let Some(algorithm) = &options.algorithm {
        check_algorithm(folder, kind, algorithm)?;
    }
    if folder.config.num_hidden_layers.is_some_and(|layers| layers > 1)
        || weights.names().any(|name| name.trim_start_matches("model.").starts_with("layers.1."))
    {
        return Err(EngineError::Unsupported {
            path: folder.path().to_owned(),
            feature: "a draft head of several decoder layers".into(),
            hint: "supported are heads of one layer".into(),
        });
    }
    let spec = read_head(folder, weights, target)?;
    match &options.token_map {
        Some(path) => spec.with_token_map(read_token_map(path, target.vocabulary)?),
        None => Ok(spec),
    }
}

/// Decides by the tensors: names and architectures are copied around, shapes are not.
pub(super) fn kind(folder: &Folder, weights: &Weights) -> Result<HeadKind, EngineError> {
    let names = Names::new(weights);
    let layer = ["midlayer", "layers.0"]
        .into_iter()
        .find(|layer| names.find(&format!("{layer}.self_attn.q_proj.weight")).is_some());
    let Some(layer) = layer else {
        return Err(EngineError::Unsupported {
            path: folder.path().to_owned(),
            feature: "a draft without midlayer.* or layers.0.* tensors".into(),
            hint: "supported are EAGLE-1/2 and EAGLE-3 heads in their published layout".into(),
        });
    };
    let size = |name: &str, axis: usize| names.shape(&format!("{layer}.{name}"))?.get(axis).copied();
    // EAGLE-3 attends from embedding and feature side by side to one width of them.
    let hidden = size("self_attn.o_proj.weight", 0);
    if size("hidden_norm.weight", 0).is_some() || size("self_attn.q_proj.weight", 1) == hidden.map(|hidden| 2 * hidden)
    {
        return Ok(HeadKind::Eagle3);
    }
    if names.find("fc.weight").is_some() {
        return Ok(HeadKind::Eagle);
    }
    Err(EngineError::Unsupported {
        path: folder.path().to_owned(),
        feature: "a draft without fc.weight".into(),
        hint: "this looks like a whole model: supported are EAGLE-1/2 and EAGLE-3 heads".into(),
    })
}

fn check_algorithm(folder: &Folder, kind: HeadKind, algorithm: &str) -> Result<(), EngineError> {
    let (expected, found) = match (algorithm.to_ascii_uppercase().as_str(), kind) {
        ("EAGLE3", HeadKind::Eagle3) | ("EAGLE" | "NEXTN", HeadKind::Eagle) => return Ok(()),
        ("EAGLE3", HeadKind::Eagle) => ("EAGLE", "an EAGLE-1/2 head"),
        ("EAGLE" | "NEXTN", HeadKind::Eagle3) => ("EAGLE3", "an EAGLE-3 head"),
        _ => {
            return Err(EngineError::Configuration(format!(
                "--speculative-algorithm {algorithm} is not implemented by this engine; it drafts with EAGLE and EAGLE3"
            )));
        }
    };
    Err(EngineError::Configuration(format!(
        "--speculative-algorithm {algorithm}, but {} holds {found} (told by its tensors); use \
         --speculative-algorithm {expected}",
        folder.path().display()
    )))
}
