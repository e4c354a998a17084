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
const READ: [&str; 29] = [
    "attention_mode",
    "attention_value_scale",
    "aux_hidden_state_layer_ids",
    "aux_hidden_states_layer_ids",
    "block_size",
    "causal",
    "confidence_head_with_markov",
    "dflash_query_causal",
    "draft_vocab_size",
    "dspark_bonus_anchor",
    "eagle_aux_hidden_state_layer_ids",
    "enable_confidence_head",
    "is_causal",
    "is_neox_style",
    "markov_head_type",
    "markov_rank",
    "mask_token_id",
    "num_target_layers",
    "projector_type",
    "rope_is_neox_style",
    "sample_from_anchor",
    "shift_label",
    "sliding_window_non_causal",
    "swa_window_size",
    "target_hidden_size",
    "target_layer_ids",
    "use_aux_hidden_state",
    "use_confidence_head",
    "use_swa",
];

/// Names of a token that stands for a position to be drafted.
pub const MASKS: [&str; 4] = ["mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id"];

/// Beginnings of the names of settings of block heads alone, so that at the top level too they are
/// not those of a target from whose config a head's was copied.
const OWN: [&str; 4] = ["dflash_", "dspark_", "markov_", "selector_"];

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
const UNSUPPORTED: [(&str, Option<f64>); 20] = [
    ("attention_sink_bias", None),
    ("conv_group_size", None),
    ("conv_kernel_size", None),
    ("emb_dim", None),
    ("enable_qwen35_gated_q_proj", None),
    ("final_logit_softcapping", None),
    ("gru_hidden_dim", None),
    ("input_embedding_scale", Some(1.0)),
    ("linear_position_ids", None),
    ("log_snr_conditioning", None),
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

/// Objects with nested settings, which are checked one by one, and the name of a token, which is of
/// use only with a tokenizer: its id counts.
const NESTING: [&str; 3] = ["dflash_config", "dspark_config", "mask_token"];

impl<'a> BlockSettings<'a> {
    /// The settings in a config.json.
    pub fn new(config: &'a Config<'a>) -> Self {
        Self { config }
    }

    /// Refuses settings that are not implemented, and nested ones that are not known. In a `dspark`
    /// head the labels of the rows are shifted.
    ///
    /// # Errors
    /// With the setting and its value.
    pub fn check(self, dspark: bool) -> Result<(), EngineError> {
        let speculator = self.config.fields().speculators_model_type.is_some();
        let may_be = |name: &str| (speculator && OF_DOMINO.contains(&name)) || (dspark && name == "shift_label");
        for (name, neutral) in UNSUPPORTED.into_iter().filter(|(name, _)| !may_be(name)) {
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
        if self.switch("use_aux_hidden_state")? == Some(false) {
            return Err(self.config.unsupported(
                "use_aux_hidden_state = false in config.json",
                "block heads read the states of several layers of the target",
            ));
        }
        self.check_speculator()?;
        for (name, value) in self.nested() {
            self.check_known(name, &value, "in dflash_config of config.json")?;
        }
        for (name, value) in &self.config.fields().other {
            if OWN.iter().any(|beginning| name.starts_with(beginning)) {
                self.check_known(name, value, "in config.json")?;
            }
        }
        Ok(())
    }

    /// Refuses a setting that is on and not known.
    fn check_known(self, name: &str, value: &Json, place: &str) -> Result<(), EngineError> {
        let unsupported = UNSUPPORTED.iter().any(|(known, _)| *known == name);
        let known = unsupported || READ.contains(&name) || MASKS.contains(&name) || NESTING.contains(&name);
        // Settings of training change nothing.
        if known || families::is_off(value) || TRAINING.iter().any(|beginning| name.starts_with(beginning)) {
            return Ok(());
        }
        Err(self.config.unsupported(
            format!("{name} = {value} {place}"),
            "this engine does not know the setting, which may change what the head drafts",
        ))
    }

    /// Refuses settings of the speculators library that are not known: it puts those of a head at
    /// the top level, next to the layer's.
    fn check_speculator(self) -> Result<(), EngineError> {
        let fields = self.config.fields();
        let is_general = |name: &str| GENERAL.iter().any(|beginning| name.starts_with(beginning));
        for name in fields.speculators_fields.iter().filter(|name| !is_general(name)) {
            if let Some(value) = fields.other.get(name) {
                self.check_known(name, value, "in a config.json of the speculators library")?;
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
            "block_size" => fields.block_size.map(Json::from),
            "draft_vocab_size" => fields.draft_vocab_size.map(Json::from),
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
