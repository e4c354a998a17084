//! The kind of a draft. The names and shapes of its tensors decide; classes and settings in config
//! files are often copied from other models, so they are used only if the tensors are not known, or
//! cannot tell: which rows of a block propose is no matter of tensors ([`super::block_head`]).

use serde::{Deserialize, Serialize};

use super::{ModelConfig, ModelFacts, TensorHeaders, TensorIndex};

/// Maximum number of layers of a head that has the class of a whole model.
const MOST_LAYERS: usize = 4;

/// Kind of draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DraftKind {
    /// An EAGLE-1/2 head: one hidden state and the embedding go into `fc`.
    Eagle,
    /// An EAGLE-3 head: several hidden states of the target, and its own vocabulary.
    Eagle3,
    /// A multi-token-prediction layer.
    Mtp,
    /// DFLASH, DSPARK and similar drafts, which propose a block in one pass.
    Block,
    /// A separate language model.
    Standalone,
}

/// A draft as recognised by its tensors, with what a reader has to know to find them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftHead {
    /// An EAGLE-1/2 head.
    Eagle {
        /// Common prefix of the names of its layer; `None` if it is in none of the published
        /// layouts.
        layer: Option<&'static str>,
    },
    /// An EAGLE-3 head.
    Eagle3 {
        /// As for EAGLE-1/2.
        layer: Option<&'static str>,
    },
    /// A DFLASH head, or a DSPARK head.
    Block {
        /// Whether it is a DSPARK head: it says so, or has a Markov head. Without one it differs
        /// from a DFLASH head in the rows that propose, not in its tensors.
        dspark: bool,
    },
    /// A multi-token-prediction layer.
    Mtp(MtpLayout),
    /// A head that has the tensors of another kind and drafts something else.
    Variant {
        /// Its published name, such as `P-EAGLE`.
        name: &'static str,
        /// The kind whose tensors it has.
        like: DraftKind,
        /// The class, setting or tensor that identifies it.
        sign: String,
    },
    /// A whole language model.
    Model,
}

/// Where a checkpoint stores an MTP layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpLayout {
    /// As a decoder layer with this number: after the target's last one, or 0 in folders that
    /// contain nothing else (DeepSeek, GLM).
    Layer(usize),
    /// `mtp_layers.0` (MiMo).
    Mimo,
    /// `mtp` (Qwen).
    Qwen,
}

/// The tensors of a checkpoint, by name. An implementation also finds a name with a leading
/// `model.` added, as exporters differ in this.
pub trait TensorList {
    /// The shape of a tensor, empty if only names are known; `None` if it does not exist.
    fn shape_of(&self, name: &str) -> Option<&[usize]>;

    /// The names of all tensors.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_>;
}

/// Names of the norm over the features of a block head, in the published layouts. In other heads it
/// is in a layer.
pub const CONTEXT_NORMS: [&str; 2] = ["hidden_norm", "encoder.output_norm_enc"];

/// Prefixes of the layer of EAGLE heads, in the published layouts.
const LAYERS: [&str; 2] = ["midlayer", "layers.0"];

/// Heads that are built on another kind and draft something else: what identifies each, by class,
/// tensor or setting.
const VARIANTS: [(&str, DraftKind, &[&str]); 5] = [
    (
        "DFlash2",
        DraftKind::Block,
        &["dflash2", "candidate_selector.", "attention_conv.", "mlp_conv.", "museglimmerassistant"],
    ),
    ("LiLiCorr", DraftKind::Block, &["lilicorr"]),
    ("Domino", DraftKind::Block, &["domino", "prefix_gru.", "embed_proj."]),
    ("XPress", DraftKind::Block, &["xpress"]),
    ("P-EAGLE", DraftKind::Eagle3, &["peagle", "p_eagle", "mask_hidden"]),
];

/// EAGLE-1/2 draft classes of SGLang (`models/llama_eagle.py` and its siblings).
const EAGLE_ARCHITECTURES: &[&str] =
    &["LlamaForCausalLMEagle", "MistralForCausalLMEagle", "MistralLarge3ForCausalLMEagle", "Qwen2ForCausalLMEagle"];

/// The class of DeepSpec's EAGLE-3 heads, which have Qwen3's attention and read five states.
pub const DEEPSPEC_EAGLE3: &str = "Qwen3Eagle3Model";

impl DraftKind {
    /// The kind of draft of an algorithm by SGLang's name, in any case; `None` for look-ups, and
    /// for an unknown name.
    pub fn from_algorithm(algorithm: &str) -> Option<Self> {
        Some(match algorithm.to_ascii_uppercase().as_str() {
            "EAGLE" => Self::Eagle,
            "EAGLE3" => Self::Eagle3,
            "NEXTN" => Self::Mtp,
            "DFLASH" | "DSPARK" => Self::Block,
            "STANDALONE" => Self::Standalone,
            _ => return None,
        })
    }

    /// What it is, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Eagle => "an EAGLE-1/2 head",
            Self::Eagle3 => "an EAGLE-3 head",
            Self::Mtp => "an MTP layer",
            Self::Block => "a block head",
            Self::Standalone => "a whole model",
        }
    }
}

impl DraftHead {
    /// Recognises a draft by its tensors; `None` if they are those of no known kind. The config
    /// gives the widths that shapes are compared with, and the names of variants.
    pub fn detect(config: &ModelConfig, tensors: &impl TensorList) -> Option<Self> {
        let has = |name: &str| tensors.shape_of(name).is_some();
        // The order matters: an MTP layer has the tensors of an EAGLE head too, and variants those
        // of the kind that they are built on.
        if let Some(layout) = MtpLayout::detect(tensors) {
            return Some(Self::Mtp(layout));
        }
        if let Some(variant) = variant(config, tensors) {
            return Some(variant);
        }
        if CONTEXT_NORMS.iter().any(|name| has(&format!("{name}.weight"))) {
            return Some(Self::Block { dspark: config.is_dspark(tensors) });
        }
        let layer = LAYERS.into_iter().find(|layer| has(&format!("{layer}.self_attn.q_proj.weight")));
        if is_eagle3(config, tensors, layer) {
            return Some(Self::Eagle3 { layer });
        }
        // Only EAGLE heads are left that join embedding and feature.
        if has("fc.weight") {
            return Some(Self::Eagle { layer });
        }
        (layer.is_some() && has("embed_tokens.weight")).then_some(Self::Model)
    }

    /// What it is, for messages, and SGLang's name of the algorithm that it drafts with; `None` for
    /// a variant.
    pub fn algorithm(&self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Eagle { .. } => (self.kind().words(), "EAGLE"),
            Self::Eagle3 { .. } => (self.kind().words(), "EAGLE3"),
            Self::Block { dspark: false } => ("a DFLASH head", "DFLASH"),
            Self::Block { dspark: true } => ("a DSPARK head", "DSPARK"),
            Self::Mtp(_) => (self.kind().words(), "NEXTN"),
            Self::Model => (self.kind().words(), "STANDALONE"),
            Self::Variant { .. } => return None,
        })
    }

    /// Its kind.
    pub fn kind(&self) -> DraftKind {
        match self {
            Self::Eagle { .. } => DraftKind::Eagle,
            Self::Eagle3 { .. } => DraftKind::Eagle3,
            Self::Block { .. } => DraftKind::Block,
            Self::Mtp(_) => DraftKind::Mtp,
            Self::Variant { like, .. } => *like,
            Self::Model => DraftKind::Standalone,
        }
    }
}

/// Whether an EAGLE head is one of EAGLE-3: it has a map of its vocabulary, norms the features in
/// its layer, reads the concatenated embedding and feature in its attention, or reduces more than
/// two states.
fn is_eagle3(config: &ModelConfig, tensors: &impl TensorList, layer: Option<&str>) -> bool {
    let map = ["d2t", "t2d"].into_iter().any(|name| tensors.shape_of(name).is_some());
    let of_layer = |name: &str| tensors.shape_of(&format!("{}.{name}", layer?));
    let output = of_layer("self_attn.o_proj.weight").and_then(|shape| shape.first().copied());
    let twice = output.and_then(|output| output.checked_mul(2));
    let input = of_layer("self_attn.q_proj.weight").and_then(|shape| shape.get(1).copied());
    map || of_layer("hidden_norm.weight").is_some()
        || (twice.is_some() && input == twice)
        || config.fc_states(tensors).is_some_and(|states| states > 2)
}

/// The variant that a class, a setting or a tensor names.
fn variant(config: &ModelConfig, tensors: &impl TensorList) -> Option<DraftHead> {
    let classes = config.architectures.iter().map(|name| name.to_ascii_lowercase());
    let kind = config.dflash_config.as_ref().and_then(|dflash| dflash.other.get("projector_type"));
    let kind = kind.or(config.other.get("projector_type")).and_then(|kind| kind.as_str());
    let kind = kind.or(config.speculators_model_type.as_deref()).map(str::to_ascii_lowercase);
    let named: Vec<String> = classes.chain(kind).collect();
    VARIANTS.into_iter().find_map(|(name, like, signs)| {
        let is_named = |text: &str| signs.iter().any(|sign| text.contains(sign));
        let class = named.iter().find(|class| is_named(class)).cloned();
        let sign = class.or_else(|| tensors.names().find(|tensor| is_named(tensor)).map(str::to_owned))?;
        Some(DraftHead::Variant { name, like, sign })
    })
}

impl MtpLayout {
    /// Where the first MTP layer is stored, judging by the projection of embedding and hidden
    /// state.
    fn detect(tensors: &impl TensorList) -> Option<Self> {
        if tensors.shape_of("mtp_layers.0.input_proj.weight").is_some() {
            return Some(Self::Mimo);
        }
        if tensors.shape_of("mtp.fc.weight").is_some() {
            return Some(Self::Qwen);
        }
        let numbers = tensors.names().filter_map(|name| {
            let number = name.strip_prefix("model.").unwrap_or(name).strip_prefix("layers.")?;
            number.strip_suffix(".eh_proj.weight")?.parse().ok()
        });
        numbers.min().map(Self::Layer)
    }
}

impl ModelFacts {
    /// The draft in this checkpoint, if its tensors are known and decide.
    pub fn draft_head(&self) -> Option<DraftHead> {
        match (&self.tensors, &self.index) {
            (Some(tensors), _) => DraftHead::detect(&self.config, tensors),
            (None, Some(index)) => DraftHead::detect(&self.config, index),
            (None, None) => None,
        }
    }

    /// Whether it is a whole language model, judging by its tensors, else by its config: heads have
    /// few layers.
    pub fn is_whole_model(&self) -> bool {
        match self.draft_head() {
            Some(head) => head == DraftHead::Model,
            None => {
                let is_deep = self.config.num_hidden_layers.is_some_and(|layers| layers > MOST_LAYERS);
                is_deep && self.config.draft_kind() == Some(DraftKind::Standalone)
            }
        }
    }

    /// SGLang's name of the algorithm that it drafts with, judging by its tensors, else by its
    /// class and settings.
    pub fn drafts_with(&self) -> Option<&'static str> {
        let by_tensors = self.draft_head().filter(|head| !matches!(head, DraftHead::Eagle { layer: None }));
        match by_tensors {
            Some(head) => head.algorithm().map(|(_, algorithm)| algorithm),
            None => self.config.draft_algorithm(),
        }
    }

    /// The kind of draft, judging by its tensors, else by its config; `None` if it cannot be
    /// recognised.
    pub fn draft_kind(&self) -> Option<DraftKind> {
        let named = || self.config.draft_kind();
        match self.draft_head() {
            // Without its layer, a head that reduces two states looks like one that joins a state
            // with an embedding.
            Some(DraftHead::Eagle { layer: None }) if named() == Some(DraftKind::Eagle3) => Some(DraftKind::Eagle3),
            Some(head) => Some(head.kind()),
            None => named(),
        }
    }
}

impl ModelConfig {
    /// SGLang's name of the algorithm that the class and the settings of a draft name; `None` if
    /// they name none, or one that no engine runs by this name, such as DFlash2.
    pub fn draft_algorithm(&self) -> Option<&'static str> {
        let is_variant = || variant(self, &TensorHeaders::default()).is_some();
        let kind = self.draft_kind().filter(|_| !is_variant())?;
        Some(match kind {
            DraftKind::Eagle => "EAGLE",
            DraftKind::Eagle3 => "EAGLE3",
            DraftKind::Mtp => "NEXTN",
            DraftKind::Block if self.names_dspark() => "DSPARK",
            DraftKind::Block => "DFLASH",
            // The first EAGLE heads have the class of a whole model.
            DraftKind::Standalone if self.num_hidden_layers == Some(1) => "EAGLE",
            DraftKind::Standalone => "STANDALONE",
        })
    }

    /// The kind of draft that the class and the settings name; `None` if they name none.
    pub fn draft_kind(&self) -> Option<DraftKind> {
        let class = self.architecture().unwrap_or_default();
        if class.contains("DFlash") || self.names_dspark() || self.dflash_config.is_some() {
            return Some(DraftKind::Block);
        }
        let of_eagle3 = self.architectures.iter().any(|name| name.to_ascii_lowercase().contains("eagle3"));
        let vocabulary = self.draft_vocab_size.is_some_and(|size| self.vocab_size != Some(size));
        let states = self.num_aux_hidden_states.is_some_and(|states| states > 1);
        if of_eagle3 || vocabulary || self.eagle_config.is_some() || states {
            return Some(DraftKind::Eagle3);
        }
        if self.architectures.iter().any(|name| EAGLE_ARCHITECTURES.contains(&name.as_str())) {
            return Some(DraftKind::Eagle);
        }
        if self.block_size.is_some() {
            return Some(DraftKind::Block);
        }
        if class.ends_with("NextN") || class.ends_with("MTP") || self.mtp_layers().is_some_and(|layers| layers > 0) {
            return Some(DraftKind::Mtp);
        }
        class.ends_with("ForCausalLM").then_some(DraftKind::Standalone)
    }

    /// Whether servers of SGLang and vLLM can run a head of this class with these settings, as far
    /// as is known: neither has DeepSpec's class of EAGLE-3 heads, and SGLang requires the Markov
    /// head of DSPARK.
    pub fn runs_in_servers(&self) -> bool {
        let without_markov = self.names_dspark() && self.has_markov_head() == Some(false);
        !without_markov && self.architecture() != Some(DEEPSPEC_EAGLE3)
    }

    /// Number of hidden states that `fc` takes: its input width / the target's hidden size
    /// (`target_hidden_size` if given, else its output width, since a config's own width may be
    /// that of another model).
    fn fc_states(&self, tensors: &impl TensorList) -> Option<usize> {
        let [outputs, inputs] = tensors.shape_of("fc.weight")? else { return None };
        let width = self.target_hidden_size.unwrap_or(*outputs);
        if width == 0 {
            return None;
        }
        inputs.is_multiple_of(width).then_some(inputs / width)
    }
}

impl TensorList for TensorHeaders {
    fn shape_of(&self, name: &str) -> Option<&[usize]> {
        let header = self.0.get(name).or_else(|| self.0.get(&format!("model.{name}")));
        header.map(|header| header.shape.as_slice())
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.0.keys().map(String::as_str))
    }
}

/// An index has no shapes.
impl TensorList for TensorIndex {
    fn shape_of(&self, name: &str) -> Option<&[usize]> {
        let found = self.shards.contains_key(name) || self.shards.contains_key(&format!("model.{name}"));
        found.then_some(&[])
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.shards.keys().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TensorHeader;

    const PLAIN: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "vocab_size": 100}"#;

    fn config(text: &str) -> ModelConfig {
        ModelConfig::parse(text).expect("a config")
    }

    fn headers(tensors: &[(&str, &[usize])]) -> TensorHeaders {
        let header = |shape: &[usize]| TensorHeader { dtype: "F16".into(), shape: shape.to_vec() };
        TensorHeaders(tensors.iter().map(|(name, shape)| ((*name).to_owned(), header(shape))).collect())
    }

    fn check(text: &str, tensors: &[(&str, &[usize])], expected: Option<DraftHead>) {
        assert_eq!(DraftHead::detect(&config(text), &headers(tensors)), expected, "{text} {tensors:?}");
    }

    #[test]
    fn tensors_decide_about_the_kind_of_a_head() {
        const QUERY: &str = "self_attn.q_proj.weight";
        check(PLAIN, &[("model.fc.weight", &[8, 16])], Some(DraftHead::Eagle { layer: None }));
        check(PLAIN, &[("fc.weight", &[8, 24])], Some(DraftHead::Eagle3 { layer: None }));
        check(PLAIN, &[("d2t", &[50])], Some(DraftHead::Eagle3 { layer: None }));
        let layer = format!("model.layers.0.{QUERY}");
        check(
            PLAIN,
            &[(&layer, &[8, 8]), ("model.fc.weight", &[8, 16])],
            Some(DraftHead::Eagle { layer: Some("layers.0") }),
        );
        check(PLAIN, &[(&layer, &[8, 8]), ("model.embed_tokens.weight", &[100, 8])], Some(DraftHead::Model));
        let (layer, output) = (format!("midlayer.{QUERY}"), "midlayer.self_attn.o_proj.weight");
        check(PLAIN, &[(&layer, &[8, 16]), (output, &[8, 8])], Some(DraftHead::Eagle3 { layer: Some("midlayer") }));
        check(
            PLAIN,
            &[(&layer, &[8, 8]), ("midlayer.hidden_norm.weight", &[8])],
            Some(DraftHead::Eagle3 { layer: Some("midlayer") }),
        );
        check(
            PLAIN,
            &[("hidden_norm.weight", &[8]), ("fc.weight", &[8, 40])],
            Some(DraftHead::Block { dspark: false }),
        );
        check(
            r#"{"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 4}"#,
            &[("encoder.output_norm_enc.weight", &[8]), ("markov_head.markov_w1.weight", &[4, 4])],
            Some(DraftHead::Block { dspark: true }),
        );
        check(PLAIN, &[("lm_head.weight", &[8, 8])], None);
        // A config with the width of another model changes nothing.
        check(r#"{"hidden_size": 4}"#, &[("fc.weight", &[8, 16])], Some(DraftHead::Eagle { layer: None }));
        check(
            r#"{"hidden_size": 8, "target_hidden_size": 4}"#,
            &[("fc.weight", &[8, 12])],
            Some(DraftHead::Eagle3 { layer: None }),
        );
    }

    #[test]
    fn mtp_layers_are_found_in_every_layout() {
        let mtp = |layout| Some(DraftHead::Mtp(layout));
        let names = ["model.layers.62.eh_proj.weight", "model.layers.61.eh_proj.weight", "model.layers.7.x.weight"];
        check(PLAIN, &names.map(|name| (name, &[8_usize, 16][..])), mtp(MtpLayout::Layer(61)));
        check(PLAIN, &[("layers.0.eh_proj.weight", &[8, 16])], mtp(MtpLayout::Layer(0)));
        check(PLAIN, &[("model.mtp_layers.0.input_proj.weight", &[8, 16])], mtp(MtpLayout::Mimo));
        check(PLAIN, &[("mtp.fc.weight", &[8, 16])], mtp(MtpLayout::Qwen));
        check(PLAIN, &[("layers.99999999999999999999999.eh_proj.weight", &[8, 16])], None);
    }

    #[test]
    fn variants_are_known_by_class_setting_and_tensor() {
        let check = |text: &str, tensors: &[(&str, &[usize])], expected: (&str, DraftKind)| match DraftHead::detect(
            &config(text),
            &headers(tensors),
        ) {
            Some(DraftHead::Variant { name, like, .. }) => assert_eq!((name, like), expected, "{text}"),
            found => panic!("{text}: {found:?}"),
        };
        check(r#"{"architectures": ["PEagleLlama"]}"#, &[("fc.weight", &[8, 24])], ("P-EAGLE", DraftKind::Eagle3));
        check(PLAIN, &[("mask_hidden", &[8]), ("d2t", &[8])], ("P-EAGLE", DraftKind::Eagle3));
        check(r#"{"projector_type": "domino"}"#, &[("hidden_norm.weight", &[8])], ("Domino", DraftKind::Block));
    }

    #[test]
    fn a_whole_model_has_many_layers_or_the_tensors_of_one() {
        let of = |text: &str| ModelFacts { config: config(text), ..ModelFacts::default() };
        assert!(of(r#"{"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36}"#).is_whole_model());
        assert!(!of(r#"{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}"#).is_whole_model());
        assert!(!of(r#"{"architectures": ["DFlashDraftModel"], "num_hidden_layers": 8}"#).is_whole_model());
        let tensors = headers(&[("fc.weight", &[8, 24])]);
        let text = r#"{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 36}"#;
        let head = ModelFacts { tensors: Some(tensors), ..of(text) };
        assert!(!head.is_whole_model());
        assert_eq!((head.drafts_with(), of(text).drafts_with()), (Some("EAGLE3"), Some("STANDALONE")));
    }

    #[test]
    fn an_index_tells_the_kind_by_names_alone() {
        let names = ["midlayer.self_attn.q_proj.weight", "midlayer.hidden_norm.weight", "fc.weight"];
        let shards = names.into_iter().map(|name| (name.to_owned(), "x".to_owned())).collect();
        let index = Some(TensorIndex { shards, total_size: None });
        let facts = ModelFacts { config: config(PLAIN), index, ..ModelFacts::default() };
        assert_eq!(facts.draft_kind(), Some(DraftKind::Eagle3));
    }

    #[test]
    fn settings_decide_where_the_layer_of_a_head_is_not_known() {
        let tensors = Some(headers(&[("fc.weight", &[8, 16])]));
        let kind = |text: &str| {
            ModelFacts { config: config(text), tensors: tensors.clone(), ..ModelFacts::default() }.draft_kind()
        };
        assert_eq!(kind(PLAIN), Some(DraftKind::Eagle));
        assert_eq!(kind(r#"{"hidden_size": 8, "num_aux_hidden_states": 2}"#), Some(DraftKind::Eagle3));
    }

    #[test]
    fn without_tensors_class_and_settings_name_the_kind() {
        let check = |text: &str, expected: Option<DraftKind>| {
            let facts = ModelFacts { config: config(text), ..ModelFacts::default() };
            assert_eq!(facts.draft_kind(), expected, "{text}");
        };
        check(PLAIN, Some(DraftKind::Standalone));
        check(
            r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 9, "draft_vocab_size": 5}"#,
            Some(DraftKind::Eagle3),
        );
        check(r#"{"architectures": ["Eagle3DeepseekV2ForCausalLM"]}"#, Some(DraftKind::Eagle3));
        check(r#"{"architectures": ["Qwen2ForCausalLMEagle"]}"#, Some(DraftKind::Eagle));
        check(r#"{"architectures": ["DFlashDraftModel"], "draft_vocab_size": 5}"#, Some(DraftKind::Block));
        check(r#"{"architectures": ["DeepseekV3ForCausalLMNextN"]}"#, Some(DraftKind::Mtp));
        check("{}", None);
    }
}
