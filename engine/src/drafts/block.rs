//! Block heads: DFLASH and DSPARK.
//!
//! Layout and defaults are those of SGLang's `models/dflash.py`, `models/dspark.py` and
//! `speculative/dflash_utils.py`, and of vLLM's `qwen3_dflash.py`; where these differ, a head for
//! which it matters is refused.

mod layers;
mod settings;

use schemas::{
    model::{ANCHORS, CONTEXT_NORMS, MARKOV},
    tree::{Block, TreeShape},
};

use self::{
    layers::layers,
    settings::{BlockSettings, MASKS},
};
use super::{
    DraftTarget,
    captured::{captured, check_features},
    unread,
    vocabulary::hot_tokens,
};
use crate::{
    checkpoint::{Weights, mask_embedding_token},
    error::EngineError,
    families::{self, Config},
    spec::{
        BlockSpec, BlockTensorLayout, CaptureNorms, CapturedFeatures, ConfidenceSpec, EmbeddingSource, LinearSpec,
        MASK_EMBEDDING, MarkovKind, MarkovSpec, VocabularySource, default_layers,
    },
};

/// Names of the confidence head, in the published layouts.
const CONFIDENCE: [&str; 2] = ["confidence_head.proj", "confidence_proj"];

/// Reads a block head for a target: a DSPARK head, or a DFLASH head. `given` is the number of rows
/// that the user asks for.
///
/// # Errors
/// When a setting or a tensor is missing, not supported, or does not fit the target.
pub fn read(
    config: &Config<'_>,
    weights: &Weights,
    target: DraftTarget<'_>,
    dspark: bool,
    given: Option<usize>,
) -> Result<BlockSpec, EngineError> {
    families::check_block_head(config)?;
    let settings = BlockSettings::new(config);
    settings.check(dspark)?;
    check_words(config, settings)?;
    let layers = layers(config, settings)?;
    let hidden = config.hidden()?;
    let own = |name: &str| config.tensors.has(name);
    if hidden != target.spec.hidden && !(own("embed_tokens.weight") && own("lm_head.weight")) {
        let expected = target.spec.hidden;
        return Err(config.malformed(format!(
            "hidden_size is {hidden}, but the target's is {expected}: they must be equal, since the head uses the target's \
             embedding and vocabulary head"
        )));
    }
    let tokens = target.spec.vocabulary;
    let vocabulary = vocabulary(config, settings, tokens)?;
    let own_head = own("lm_head.weight");
    let spec = BlockSpec {
        tensors: BlockTensorLayout {
            single: (layers.len() == 1 && own("midlayer.self_attn.q_proj.weight")).then(|| "midlayer".into()),
            reduce: if own("encoder.fc.weight") { "encoder.fc" } else { "fc" },
            context_norm: CONTEXT_NORMS[usize::from(own("encoder.output_norm_enc.weight"))],
            markov: if own("markov_w1.weight") { "" } else { "markov_head." },
            confidence: CONFIDENCE[usize::from(own("confidence_proj.weight"))],
        },
        features: features(config, settings, layers.len(), target)?,
        block: block(config, settings, dspark, given)?,
        mask: mask(config, settings, tokens)?,
        mask_embedding: own(MASK_EMBEDDING),
        value_scale: settings.number("attention_value_scale")?.unwrap_or(1.0) as f32,
        markov: markov(config, settings)?,
        confidence: confidence(config, settings)?,
        embedding: if own("embed_tokens.weight") { EmbeddingSource::Own } else { EmbeddingSource::Target },
        head: if own_head { VocabularySource::Own } else { VocabularySource::Target },
        vocabulary,
        head_rows: vocabulary,
        tokens: if own_head { hot_tokens(config, weights, vocabulary, tokens)? } else { None },
        layers,
    };
    check_tensors(config, &spec, tokens)?;
    Ok(spec)
}

/// Refuses words that name another kind of head.
fn check_words(config: &Config<'_>, settings: BlockSettings<'_>) -> Result<(), EngineError> {
    for (name, known) in [("projector_type", &["dflash", "dspark"][..]), ("attention_mode", &["gqa", "mha"])] {
        if let Some(word) = settings.word(name)?.filter(|word| !known.contains(&word.as_str())) {
            let known = known.join(" and ");
            return Err(config.unsupported(format!("{name} = {word} in config.json"), format!("supported are {known}")));
        }
    }
    Ok(())
}

/// The rows of its vocabulary head.
fn vocabulary(config: &Config<'_>, settings: BlockSettings<'_>, tokens: usize) -> Result<usize, EngineError> {
    let vocabulary = settings.count("draft_vocab_size")?.unwrap_or(tokens);
    if vocabulary == 0 || vocabulary > tokens {
        return Err(config.malformed(format!("draft_vocab_size is {vocabulary}, but the target has {tokens} tokens")));
    }
    if vocabulary != tokens && !config.tensors.has("lm_head.weight") {
        return Err(config.malformed(format!("draft_vocab_size is {vocabulary}, but the head has no lm_head.weight")));
    }
    Ok(vocabulary)
}

/// The features that it reads: ids count the target's layers from 0 and mean the stream after the
/// layer.
fn features(
    config: &Config<'_>,
    settings: BlockSettings<'_>,
    layers: usize,
    target: DraftTarget<'_>,
) -> Result<CapturedFeatures, EngineError> {
    let count = target.spec.layers.len();
    let width = settings.count("target_hidden_size")?.unwrap_or(target.spec.hidden);
    if width != target.spec.hidden {
        let found = target.spec.hidden;
        return Err(
            config.malformed(format!("the head expects a target of hidden size {width}, but this target has {found}"))
        );
    }
    if let Some(trained) = settings.count("num_target_layers")?.filter(|trained| *trained != count) {
        return Err(config.malformed(format!(
            "num_target_layers is {trained}, but this target has {count} layers: the head is for another target"
        )));
    }
    let at = places(config, layers, target)?;
    check_features(config, if config.tensors.has("encoder.fc.weight") { "encoder.fc" } else { "fc" }, width, at.len())?;
    let fc = LinearSpec { bias: config.tensors.has("fc.bias") };
    Ok(CapturedFeatures { at, width, norms: CaptureNorms::default(), fc: Some(fc) })
}

/// The layers before which the target's stream is captured.
fn places(config: &Config<'_>, layers: usize, target: DraftTarget<'_>) -> Result<Vec<usize>, EngineError> {
    if let Some(places) = captured(config, target)? {
        return Ok(places);
    }
    if let Some(kind) = &config.fields().speculators_model_type {
        return Err(config.malformed(format!(
            "a head of the speculators library ({kind}) without aux_hidden_state_layer_ids: add the layers that it reads, \
             since those of the library are no defaults"
        )));
    }
    let count = target.spec.layers.len();
    let default = default_layers(layers, count).map(|ids| ids.iter().map(|id| id + 1).collect());
    default.ok_or_else(|| {
        config.malformed(format!("a target of {count} layers has no default target_layer_ids: add them"))
    })
}

/// Rows of its block.
fn block(
    config: &Config<'_>,
    settings: BlockSettings<'_>,
    dspark: bool,
    given: Option<usize>,
) -> Result<Block, EngineError> {
    let mut stated = Vec::new();
    for (name, proposes) in ANCHORS {
        stated.extend(settings.switch(name)?.map(|value| value == proposes));
    }
    if stated.contains(&true) && stated.contains(&false) {
        let [(one, _), (other, _)] = ANCHORS;
        return Err(config.malformed(format!("{one} and {other} are equal, expected one to be true")));
    }
    if settings.switch("shift_label")? == Some(true) && stated.contains(&false) {
        return Err(config.malformed("shift_label is true, but sample_from_anchor is false".into()));
    }
    settings.count("block_size")?;
    let mut block = config.fields().block_of(dspark);
    block.given = given.map(|size| block.rows_for(size));
    let fits = |rows: usize| block.depth_of(rows) > 0 && rows <= TreeShape::LARGEST;
    if !fits(block.rows) {
        let rows = block.rows;
        return Err(
            config.malformed(format!("block_size is {rows}, expected a block of 1 to {} drafts", TreeShape::LARGEST))
        );
    }
    if let Some(rows) = block.given.filter(|rows| !fits(*rows)) {
        return Err(EngineError::Configuration(format!(
            "a block of {rows} rows drafts nothing, or is too large: it may have {} rows",
            TreeShape::LARGEST
        )));
    }
    Ok(block)
}

/// The token that stands for a position to be drafted.
fn mask(config: &Config<'_>, settings: BlockSettings<'_>, tokens: usize) -> Result<u32, EngineError> {
    // The vector takes the place of its token, which need not be one of the target's.
    let of_vector = mask_embedding_token(config.folder().path())?;
    let has_vector = config.tensors.has(MASK_EMBEDDING);
    for name in MASKS {
        match (settings.count(name)?, of_vector) {
            (Some(id), Some(token)) if id != token => {
                return Err(config.malformed(format!(
                    "{name} is {id}, but mask_embedding.pt is for token {token}: one of them belongs to another head"
                )));
            }
            (Some(id), _) if id < tokens => return Ok(id as u32),
            (Some(_), _) if has_vector => return Ok(0),
            (Some(id), _) => {
                return Err(config.malformed(format!("{name} is {id}, but the target has {tokens} tokens")));
            }
            (None, _) => {}
        }
    }
    if has_vector {
        return Ok(of_vector.filter(|token| *token < tokens).unwrap_or_default() as u32);
    }
    Err(config.malformed("mask_token_id is missing: it is the token that stands for a position to be drafted".into()))
}

/// The Markov head. DSPARK heads without one (`markov_rank` 0) propose as they are.
fn markov(config: &Config<'_>, settings: BlockSettings<'_>) -> Result<Option<MarkovSpec>, EngineError> {
    let rank = settings.count("markov_rank")?.filter(|rank| *rank > 0);
    let tensor = MARKOV.into_iter().find(|name| config.tensors.has(&format!("{name}.weight")));
    let rank = match (rank, tensor) {
        (None, None) => return Ok(None),
        (Some(rank), None) => {
            return Err(config
                .malformed(format!("markov_rank is {rank}, but the tensor markov_head.markov_w1.weight is missing")));
        }
        (None, Some(tensor)) => {
            return Err(config.malformed(format!("the head has {tensor}.weight, but markov_rank is missing")));
        }
        (Some(rank), Some(_)) => config.size(Some(rank), "markov_rank")?,
    };
    let kind = match settings.word("markov_head_type")?.as_deref() {
        None | Some("vanilla") => MarkovKind::Vanilla,
        Some("gated") => MarkovKind::Gated,
        Some("rnn") => MarkovKind::Recurrent,
        Some(other) => {
            return Err(config.unsupported(
                format!("markov_head_type = {other} in config.json"),
                "supported are vanilla, gated and rnn",
            ));
        }
    };
    Ok(Some(MarkovSpec { rank, kind }))
}

fn confidence(config: &Config<'_>, settings: BlockSettings<'_>) -> Result<Option<ConfidenceSpec>, EngineError> {
    const SWITCHES: [&str; 2] = ["enable_confidence_head", "use_confidence_head"];
    let has = CONFIDENCE.iter().any(|name| config.tensors.has(&format!("{name}.weight")));
    for name in SWITCHES {
        if settings.switch(name)? == Some(true) && !has {
            let tensor = format!("{}.weight", CONFIDENCE[0]);
            return Err(config.malformed(format!("{name} is true, but the tensor {tensor} is missing")));
        }
    }
    // Without a setting it reads the Markov head's row if there is one.
    let with_markov = settings.switch("confidence_head_with_markov")?.unwrap_or(true);
    Ok(has.then_some(ConfidenceSpec { with_markov }))
}

/// Checks all tensors, and refuses those that nothing reads: a sign of another kind of head.
fn check_tensors(config: &Config<'_>, spec: &BlockSpec, vocabulary: usize) -> Result<(), EngineError> {
    let tensors = spec.tensors(vocabulary);
    for tensor in tensors.all() {
        config.tensors.expect(&tensor.name, &tensor.shape)?;
    }
    unread::check(config, &format!("a {} head", spec.algorithm()), &tensors.all(), |_| false)
}
