//! Settings of a block head: in `dflash_config`, in `dspark_config`, or at the top level of its
//! config.json.
//!
//! Published heads have some of them in two places, and engines read different ones. Here all
//! places must agree. A nested setting that is not known is refused, since it may change what the
//! tensors mean.

use serde_json::Value as Json;

use crate::{
    error::EngineError,
    families::{self, Config},
};

/// The settings of a block head.
#[derive(Clone, Copy, Debug)]
pub struct BlockSettings<'a> {
    config: &'a Config<'a>,
}

/// Nested settings that the reader of block heads reads.
const READ: [&str; 21] = [
    "attention_mode",
    "attention_value_scale",
    "aux_hidden_state_layer_ids",
    "block_size",
    "causal",
    "confidence_head_with_markov",
    "draft_vocab_size",
    "eagle_aux_hidden_state_layer_ids",
    "enable_confidence_head",
    "is_causal",
    "markov_head_type",
    "markov_rank",
    "mask_token_id",
    "num_target_layers",
    "projector_type",
    "sample_from_anchor",
    "sliding_window_non_causal",
    "swa_window_size",
    "target_hidden_size",
    "target_layer_ids",
    "use_swa",
];

/// Beginnings of the names of nested settings about training only.
const TRAINING: [&str; 10] = [
    "loss_",
    "ce_loss_",
    "l1_loss_",
    "train_",
    "num_anchors",
    "max_anchors",
    "confidence_head_alpha",
    "dropout",
    "lambda_base",
    "auf",
];

/// Beginnings of the names of a speculator's settings that every config may have, or that describe
/// where it comes from.
const GENERAL: [&str; 20] = [
    "speculators_",
    "architectures",
    "auto_map",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "tie_word_embeddings",
    "model_type",
    "name_or_path",
    "_",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "id2label",
    "label2id",
    "return_dict",
    "output_",
    "chunk_size_feed_forward",
    "has_no_defaults_at_init",
    "quantization_config",
];

/// Settings that change what a head computes and are not implemented, with the value that has no
/// effect.
const UNSUPPORTED: [(&str, Option<f64>); 17] = [
    ("attention_sink_bias", None),
    ("conv_group_size", None),
    ("conv_kernel_size", None),
    ("emb_dim", None),
    ("final_logit_softcapping", None),
    ("gru_hidden_dim", None),
    ("input_embedding_scale", Some(1.0)),
    ("logits_mup_width_multiplier", Some(1.0)),
    ("num_refinements", None),
    ("output_multiplier", Some(1.0)),
    ("pure_draft_prefix_len", None),
    ("refine_steps", None),
    ("selector_rank", None),
    ("selector_top_k", None),
    ("shift_label", None),
    ("use_gemma_norm", None),
    ("use_mask_hidden", None),
];

/// Settings of Domino heads, which are refused by their name. The speculators library writes them
/// into the config of every block head.
const OF_DOMINO: [&str; 3] = ["emb_dim", "gru_hidden_dim", "pure_draft_prefix_len"];

/// Objects with nested settings, which are checked one by one, and names of tokens.
const NESTING: [&str; 3] = ["dflash_config", "dspark_config", "mask_token"];

impl<'a> BlockSettings<'a> {
    /// The settings in a config.json.
    pub fn new(config: &'a Config<'a>) -> Self {
        Self { config }
    }

    /// Refuses settings that are not implemented, and nested ones that are not known.
    ///
    /// # Errors
    /// With the setting and its value.
    pub fn check(self) -> Result<(), EngineError> {
        let speculator = self.config.fields().speculators_model_type.is_some();
        for (name, neutral) in UNSUPPORTED.into_iter().filter(|(name, _)| !speculator || !OF_DOMINO.contains(name)) {
            let has_effect = |value: &Json| match value {
                Json::Null | Json::Bool(false) => false,
                Json::Number(number) => number.as_f64() != Some(neutral.unwrap_or(0.0)),
                _ => true,
            };
            if let Some(value) = self.value(name)?.filter(has_effect) {
                return Err(self.config.unsupported(
                    format!("{name} = {value} in config.json"),
                    "this setting changes what the head drafts, and this engine does not implement it",
                ));
            }
        }
        self.check_speculator()?;
        for (name, value) in self.nested() {
            let known = READ.contains(&name) || UNSUPPORTED.iter().any(|(known, _)| *known == name);
            // The name of a token is of use only with a tokenizer; its id counts.
            let harmless = name == "mask_token" || TRAINING.iter().any(|beginning| name.starts_with(beginning));
            if !known && !harmless && !value.is_null() {
                return Err(self.config.unsupported(
                    format!("{name} = {value} in dflash_config of config.json"),
                    "this engine does not know the setting, which may change what the head drafts",
                ));
            }
        }
        Ok(())
    }

    /// Refuses settings of the speculators library that are not known: it puts those of a head at
    /// the top level, next to the layer's.
    fn check_speculator(self) -> Result<(), EngineError> {
        let fields = self.config.fields();
        let known = |name: &&String| {
            let beginnings = GENERAL.iter().chain(&TRAINING).any(|beginning| name.starts_with(beginning));
            let unsupported = UNSUPPORTED.iter().any(|(known, _)| known == name);
            beginnings || unsupported || READ.contains(&name.as_str()) || NESTING.contains(&name.as_str())
        };
        for name in fields.speculators_fields.iter().filter(|name| !known(name)) {
            if let Some(value) = fields.other.get(name).filter(|value| !families::is_off(value)) {
                return Err(self.config.unsupported(
                    format!("{name} = {value} in a config.json of the speculators library"),
                    "this engine does not know the setting, which may change what the head drafts",
                ));
            }
        }
        Ok(())
    }

    /// A number.
    ///
    /// # Errors
    /// When it is of another type, or differs between places.
    pub fn number(self, name: &str) -> Result<Option<f64>, EngineError> {
        self.read(name, "a number", Json::as_f64)
    }

    /// An integer of at least 0.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn count(self, name: &str) -> Result<Option<usize>, EngineError> {
        self.read(name, "an integer of at least 0", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// True or false.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn switch(self, name: &str) -> Result<Option<bool>, EngineError> {
        self.read(name, "true or false", Json::as_bool)
    }

    /// A word, in lower case.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn word(self, name: &str) -> Result<Option<String>, EngineError> {
        self.read(name, "a word", |value| value.as_str().map(str::to_ascii_lowercase))
    }

    /// A list of integers of at least 0.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn counts(self, name: &str) -> Result<Option<Vec<usize>>, EngineError> {
        let count = |value: &Json| usize::try_from(value.as_u64()?).ok();
        self.read(name, "a list of integers of at least 0", |value| value.as_array()?.iter().map(count).collect())
    }

    fn read<T>(self, name: &str, expected: &str, of: impl Fn(&Json) -> Option<T>) -> Result<Option<T>, EngineError> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let wrong = || self.config.malformed(format!("{name} is {value}, expected {expected}"));
        of(&value).map(Some).ok_or_else(wrong)
    }

    /// The value in all places that have one.
    fn value(self, name: &str) -> Result<Option<Json>, EngineError> {
        let fields = self.config.fields();
        // Fields that other models have too, which the configuration reads under their own type.
        let typed = match name {
            "aux_hidden_state_layer_ids" => fields.aux_hidden_state_layer_ids.clone().map(Json::from),
            "block_size" => fields.block_size.map(Json::from),
            "draft_vocab_size" => fields.draft_vocab_size.map(Json::from),
            "eagle_aux_hidden_state_layer_ids" => fields.eagle_aux_hidden_state_layer_ids.clone().map(Json::from),
            "is_causal" => fields.is_causal.map(Json::from),
            "num_target_layers" => fields.num_target_layers.map(Json::from),
            "target_hidden_size" => fields.target_hidden_size.map(Json::from),
            _ => fields.other.get(name).cloned(),
        };
        let nested = self.nested().filter(|(nested, _)| *nested == name).map(|(_, value)| value);
        let mut found: Vec<Json> = nested.chain(typed).filter(|value| !value.is_null()).collect();
        found.dedup();
        match found.as_slice() {
            [] => Ok(None),
            [value] => Ok(Some(value.clone())),
            [one, other, ..] => Err(self.config.malformed(format!(
                "{name} is {one} in dflash_config but {other} outside it, and engines differ in which one they read: make \
                 them equal"
            ))),
        }
    }

    /// All nested settings.
    fn nested(self) -> impl Iterator<Item = (&'a str, Json)> {
        let fields = self.config.fields();
        let dflash = fields.dflash_config.as_ref();
        let layers =
            dflash.and_then(|dflash| dflash.num_target_layers).map(|layers| ("num_target_layers", layers.into()));
        let dspark = fields.other.get("dspark_config").and_then(Json::as_object);
        let dflash = dflash.into_iter().flat_map(|dflash| &dflash.other);
        let maps = dflash.chain(dspark.into_iter().flatten());
        layers.into_iter().chain(maps.map(|(name, value)| (name.as_str(), value.clone())))
    }
}
