//! Block heads: DFLASH and DSPARK.
//!
//! Layout and defaults are those of SGLang's `models/dflash.py`, `models/dspark.py` and
//! `speculative/dflash_utils.py`, and of vLLM's `qwen3_dflash.py`; where these differ, a head for
//! which it matters is refused.

mod layers;
mod settings;

use schemas::{
    model::CONTEXT_NORMS,
    tree::{Block, TreeShape},
};

use self::{layers::layers, settings::BlockSettings};
use super::{DraftTarget, unread, vocabulary::hot_tokens};
use crate::{
    checkpoint::{Weights, mask_embedding_token},
    error::EngineError,
    families::{self, Config},
    spec::{
        BlockSpec, BlockTensorLayout, CaptureNorms, CapturedFeatures, ConfidenceSpec, EmbeddingSource, LinearSpec,
        MASK_EMBEDDING, MarkovKind, MarkovSpec, VocabularySource, default_layers,
    },
};

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
    families::check_but_windows(config, &["attention_value_scale"])?;
    let settings = BlockSettings::new(config);
    settings.check()?;
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
        },
        features: features(config, settings, layers.len(), target)?,
        block: block(config, settings, dspark, given)?,
        mask: mask(config, settings, tokens)?,
        mask_embedding: own(MASK_EMBEDDING),
        value_scale: settings.number("attention_value_scale")?.unwrap_or(1.0) as f32,
        markov: markov(config, settings, dspark)?,
        confidence: confidence(config, settings, dspark)?,
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
    let at = captured(config, settings, layers, count)?;
    let fc = LinearSpec { bias: config.tensors.has("fc.bias") };
    Ok(CapturedFeatures { at, width, norms: CaptureNorms::default(), fc: Some(fc) })
}

/// The layers before which the target's stream is captured. `target_layer_ids` name the layers
/// after which it is; the lists of the speculators library, under either name, the layers before
/// which.
fn captured(
    config: &Config<'_>,
    settings: BlockSettings<'_>,
    layers: usize,
    count: usize,
) -> Result<Vec<usize>, EngineError> {
    const ENTRIES: [&str; 2] = ["aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"];
    let outputs = settings.counts("target_layer_ids")?;
    let outputs = outputs.map(|ids| ("target_layer_ids", ids.iter().map(|id| id.saturating_add(1)).collect()));
    let mut found: Vec<(&str, Vec<usize>)> = outputs.into_iter().collect();
    for name in ENTRIES {
        found.extend(settings.counts(name)?.map(|ids| (name, ids)));
    }
    let Some((name, at)) = found.first().cloned() else {
        if let Some(kind) = &config.fields().speculators_model_type {
            return Err(config.malformed(format!(
                "a head of the speculators library ({kind}) without aux_hidden_state_layer_ids: add the layers that it reads, \
                 since those of the library are no defaults"
            )));
        }
        return default_layers(layers, count).map(|ids| ids.iter().map(|id| id + 1).collect()).ok_or_else(|| {
            config.malformed(format!("a target of {count} layers has no default target_layer_ids: add them"))
        });
    };
    if let Some((other, _)) = found.iter().find(|(_, places)| *places != at) {
        return Err(config.malformed(format!(
            "{name} and {other} name different layers (an id in target_layer_ids is one less than elsewhere): make them equal"
        )));
    }
    if at.is_empty() || at.iter().any(|place| *place > count) {
        let least = usize::from(name == "target_layer_ids");
        let ids: Vec<usize> = at.iter().map(|place| place - least).collect();
        let last = count - least.min(count);
        return Err(config.malformed(format!("{name} {ids:?}: expected ids of layers from 0 to {last}")));
    }
    if at.is_sorted_by(|one, next| one < next) {
        return Ok(at);
    }
    tracing::warn!(
        "{}: {name} is not in the order of the layers, or repeats one: the features are joined in the order of the list, \
         while vLLM and SGLang collect them in the order of the layers, each once",
        config.folder().path().display()
    );
    Ok(at)
}

/// Rows of its block.
fn block(
    config: &Config<'_>,
    settings: BlockSettings<'_>,
    dspark: bool,
    given: Option<usize>,
) -> Result<Block, EngineError> {
    let anchor = settings.switch("sample_from_anchor")?;
    if anchor == Some(true) && !dspark {
        return Err(config.unsupported("sample_from_anchor = true in a DFLASH head", "only DSPARK heads have it"));
    }
    let mut block = if dspark { Block::DSPARK } else { Block::DFLASH };
    block.anchored = dspark && anchor.unwrap_or(true);
    block = block.with_size(settings.count("block_size")?.unwrap_or(block.rows));
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
    const NAMES: [&str; 4] = ["mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id"];
    // The vector takes the place of its token, which need not be one of the target's.
    let of_vector = mask_embedding_token(config.folder().path())?;
    let has_vector = config.tensors.has(MASK_EMBEDDING);
    for name in NAMES {
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

fn markov(config: &Config<'_>, settings: BlockSettings<'_>, dspark: bool) -> Result<Option<MarkovSpec>, EngineError> {
    let rank = settings.count("markov_rank")?.filter(|rank| *rank > 0);
    match (dspark, rank) {
        (false, None) => Ok(None),
        (false, Some(rank)) => {
            Err(config
                .malformed(format!("markov_rank is {rank}, but the tensor markov_head.markov_w1.weight is missing")))
        }
        (true, None) => {
            Err(config.malformed("the head has markov_head.markov_w1.weight, but markov_rank is missing".into()))
        }
        (true, Some(rank)) => {
            let rank = config.size(Some(rank), "markov_rank")?;
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
    }
}

fn confidence(
    config: &Config<'_>,
    settings: BlockSettings<'_>,
    dspark: bool,
) -> Result<Option<ConfidenceSpec>, EngineError> {
    let has = config.tensors.has("confidence_head.proj.weight");
    match settings.switch("enable_confidence_head")? {
        Some(true) if !has => Err(config
            .malformed("enable_confidence_head is true, but the tensor confidence_head.proj.weight is missing".into())),
        _ if !has => Ok(None),
        _ => {
            let with_markov = settings.switch("confidence_head_with_markov")?.unwrap_or(dspark);
            Ok(Some(ConfidenceSpec { with_markov }))
        }
    }
}

/// Checks all tensors, and refuses those that nothing reads: a sign of another kind of head.
fn check_tensors(config: &Config<'_>, spec: &BlockSpec, vocabulary: usize) -> Result<(), EngineError> {
    let tensors = spec.tensors(vocabulary);
    for tensor in tensors.all() {
        config.tensors.expect(&tensor.name, &tensor.shape)?;
    }
    unread::check(config, &format!("a {} head", spec.algorithm()), &tensors.all(), |_| false)
}
