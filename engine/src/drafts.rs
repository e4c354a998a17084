//! Reads drafts, from a folder or from the target's own checkpoint, into a [`DraftSpec`].
//!
//! The tensors decide what kind of draft it is. Names and architectures in config files are often
//! copied from other models; shapes are not.

mod block;
mod captured;
mod detect;
mod eagle;
mod model;
mod mtp;
mod unread;
mod vocabulary;

use schemas::model::DraftHead;

use self::detect::Kind;
use crate::{
    checkpoint::{Folder, Weights, read_token_map},
    error::EngineError,
    families::{self, Config},
    options::EngineOptions,
    spec::{DraftSpec, RecurrentSpec, TargetSpec, TextSpec, VocabularySource},
};

/// The source of a draft.
#[derive(Debug)]
pub enum DraftFrom {
    /// A separate folder.
    Folder(Box<Folder>),
    /// The MTP layer of the target's own checkpoint.
    Target,
    /// Texts: nothing is read.
    Texts(TextSpec),
}

impl DraftFrom {
    /// The draft that the options select: the folder that they name; the target's own MTP layer if
    /// they speculate or name an algorithm without a folder (as in SGLang); else none. DSPARK heads
    /// may be in a folder `dspark` of the target's.
    ///
    /// # Errors
    /// When the folder cannot be opened, or the numbers of a rule for texts are out of range.
    pub fn options(options: &EngineOptions) -> Result<Option<Self>, EngineError> {
        if let Some(rule) = options.text_draft() {
            rule.check()?;
            return match &options.draft_model_path {
                None => Ok(Some(Self::Texts(rule))),
                Some(_) => Err(EngineError::Configuration(format!(
                    "{} looks drafts up in texts, without a draft model: remove --speculative-draft-model-path",
                    rule.algorithm()
                ))),
            };
        }
        match options.draft_folder() {
            Some(path) => Ok(Some(Self::Folder(Box::new(Folder::open(&path)?)))),
            None if options.policy.speculates() || options.algorithm.is_some() => Ok(Some(Self::Target)),
            None => Ok(None),
        }
    }
}

/// The target that a draft is read for.
#[derive(Clone, Copy, Debug)]
pub struct DraftTarget<'a> {
    /// Its folder.
    pub folder: &'a Folder,
    /// Its spec.
    pub spec: &'a TargetSpec,
}

/// Reads the draft in a folder. The options' algorithm, in SGLang's terms, is checked against the
/// tensors; their token map restricts the draft's proposals.
///
/// # Errors
/// When the kind of draft is not supported, does not fit the target, or contradicts the options, or
/// the token map cannot be read.
pub fn read_draft(
    folder: &Folder,
    weights: &Weights,
    target: DraftTarget<'_>,
    options: &EngineOptions,
) -> Result<DraftSpec, EngineError> {
    let config = Config::new(folder, weights);
    families::check_fields(folder)?;
    let head = DraftHead::detect(config.fields(), &config.tensors);
    let head = detect::as_requested(&config, head, options.algorithm.as_deref());
    let kind = detect::kind(&config, target, head.as_ref())?;
    // Detection goes by the tensors; the user's word is only compared with what was found.
    if let (Some(algorithm), Some(head)) = (&options.algorithm, &head) {
        detect::check_algorithm(folder, head, algorithm)?;
    }
    // A whole model is checked where it is read.
    let is_model = matches!(kind, Kind::Model);
    let draft = read_kind(&config, weights, kind, target, options);
    if is_model {
        return draft;
    }
    let vocabulary = target.spec.vocabulary;
    let draft = families::check_quantisation_of_draft(&config, draft, vocabulary)?;
    unread::check_recurrent(&config, &draft, vocabulary)?;
    Ok(draft)
}

fn read_kind(
    config: &Config<'_>,
    weights: &Weights,
    kind: Kind,
    target: DraftTarget<'_>,
    options: &EngineOptions,
) -> Result<DraftSpec, EngineError> {
    let folder = config.folder();
    let spec = match kind {
        Kind::Eagle { layer } => eagle::eagle(config, layer, target)?,
        Kind::Eagle3 { layer } => eagle::eagle3(config, layer, weights, target)?,
        Kind::Mtp(found) => mtp::in_folder(config, found, target)?,
        Kind::Block { .. } | Kind::Model if options.token_map.is_some() => return Err(no_token_map()),
        Kind::Block { dspark } => {
            return Ok(DraftSpec::Block(block::read(config, weights, target, dspark, options.draft_block_size)?));
        }
        Kind::Model if options.draft_block_size.is_none() => {
            return model::read(folder, weights, target).map(DraftSpec::Model);
        }
        Kind::Model => return Err(no_block(folder)),
    };
    if options.draft_block_size.is_some() {
        return Err(no_block(folder));
    }
    with_token_map(spec, target, options).map(DraftSpec::Recurrent)
}

fn no_block(folder: &Folder) -> EngineError {
    EngineError::Configuration(format!(
        "the size of a block is given, but {} contains no block head (DFLASH, DSPARK): remove it",
        folder.path().display()
    ))
}

/// Reads the MTP layer of a target's own checkpoint.
///
/// # Errors
/// When it has none, or the options require a different draft.
pub fn read_own_draft(
    weights: &Weights,
    target: DraftTarget<'_>,
    options: &EngineOptions,
) -> Result<DraftSpec, EngineError> {
    let algorithm = options.algorithm.as_deref().unwrap_or("NEXTN").to_ascii_uppercase();
    if !matches!(algorithm.as_str(), "NEXTN" | "EAGLE") {
        return Err(EngineError::Configuration(format!(
            "--speculative-algorithm {algorithm} needs a draft: give --speculative-draft-model-path (only NEXTN and EAGLE \
             draft with the MTP layer of the target's own checkpoint)"
        )));
    }
    let config = Config::new(target.folder, weights);
    let spec = mtp::from_target(&config, target)?;
    let draft = with_token_map(spec, target, options).map(DraftSpec::Recurrent)?;
    unread::check_recurrent(&config, &draft, target.spec.vocabulary)?;
    Ok(draft)
}

/// Restricts a draft to the hot tokens of FR-Spec.
fn with_token_map(
    spec: RecurrentSpec,
    target: DraftTarget<'_>,
    options: &EngineOptions,
) -> Result<RecurrentSpec, EngineError> {
    let Some(path) = &options.token_map else { return Ok(spec) };
    let tokens = read_token_map(path, target.spec.vocabulary)?;
    restricted(spec, tokens)
}

/// A draft that proposes only these tokens of the target.
///
/// # Errors
/// When it has its own vocabulary, as EAGLE-3 heads do.
pub fn restricted(spec: RecurrentSpec, tokens: Vec<u32>) -> Result<RecurrentSpec, EngineError> {
    if spec.algorithm() == "EAGLE3" || spec.head != VocabularySource::Target {
        return Err(no_token_map());
    }
    Ok(RecurrentSpec { vocabulary: tokens.len(), head_rows: tokens.len(), tokens: Some(tokens), ..spec })
}

/// The error for a token map and a draft that has none.
pub fn no_token_map() -> EngineError {
    EngineError::Configuration(
        "--speculative-token-map is for EAGLE-1/2 heads and MTP layers: an EAGLE-3 head has its own map (d2t), a block \
         head and a whole model have none, and SGLang ignores this one or drafts wrong tokens with it; remove the flag"
            .into(),
    )
}

#[cfg(test)]
mod tests;
