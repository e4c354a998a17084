//! What a block head (DFLASH, DSPARK) says of itself, wherever its config.json says it. The engine,
//! the linter and the tuner read the same.

use serde_json::Value as Json;

use super::{ModelConfig, ModelFacts, TensorList};
use crate::tree::Block;

/// Names of the first matrix of a Markov head, in the published layouts.
pub const MARKOV: [&str; 2] = ["markov_head.markov_w1", "markov_w1"];

/// Settings that say whether the last token's row proposes, with the value that says that it does.
pub const ANCHORS: [(&str, bool); 2] = [("sample_from_anchor", true), ("dspark_bonus_anchor", false)];

impl ModelConfig {
    /// Number of layers of the target that a block draft was trained with, if its config says so.
    pub fn trained_target_layers(&self) -> Option<usize> {
        self.dflash_config.as_ref().and_then(|dflash| dflash.num_target_layers).or(self.num_target_layers)
    }

    /// A setting of a block head: in `dflash_config`, in `dspark_config`, or at the top level. Of
    /// places that differ the first one counts; the engine refuses them.
    fn block_setting(&self, name: &str) -> Option<&Json> {
        let dflash = self.dflash_config.as_ref().and_then(|dflash| dflash.other.get(name));
        let dspark = self.other.get("dspark_config").and_then(|dspark| dspark.get(name));
        [dflash, dspark, self.other.get(name)].into_iter().flatten().find(|value| !value.is_null())
    }

    /// Whether the settings name a DSPARK head. Without its Markov head (`markov_rank` 0) such a
    /// head has the tensors of a DFLASH head, and still proposes from its first row on.
    pub fn names_dspark(&self) -> bool {
        let is_dspark = |word: &Json| word.as_str().is_some_and(|word| word.eq_ignore_ascii_case("dspark"));
        let named = self.speculators_model_type.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("dspark"));
        named
            || self.architectures.iter().any(|class| class.contains("DSpark"))
            || self.block_setting("projector_type").is_some_and(is_dspark)
            || self.has_markov_head() == Some(true)
            || self.block_setting("sample_from_anchor").and_then(Json::as_bool) == Some(true)
    }

    /// Whether a block head with these tensors is a DSPARK head.
    pub(super) fn is_dspark(&self, tensors: &impl TensorList) -> bool {
        let has = |name: &&str| tensors.shape_of(&format!("{name}.weight")).is_some();
        MARKOV.iter().any(has) || self.names_dspark()
    }

    /// Whether a Markov head corrects the rows, by `markov_rank`; `None` without that setting.
    pub fn has_markov_head(&self) -> Option<bool> {
        Some(self.block_setting("markov_rank")?.as_u64()? > 0)
    }

    /// Whether the last token's row proposes too, if a setting says so.
    fn states_anchor(&self) -> Option<bool> {
        let of = |(name, proposes): (&str, bool)| Some(self.block_setting(name)?.as_bool()? == proposes);
        ANCHORS.into_iter().find_map(of)
    }

    /// The block of a DFLASH or DSPARK head, judging by its class and settings; `None` for other
    /// models.
    pub fn block(&self) -> Option<Block> {
        let dspark = self.names_dspark();
        let class = self.architecture().unwrap_or_default();
        (dspark || class.contains("DFlash") || self.dflash_config.is_some()).then(|| self.block_of(dspark))
    }

    /// The block of a head that is known to be a DSPARK head, or a DFLASH head.
    pub fn block_of(&self, dspark: bool) -> Block {
        let of_library = self.speculators_model_type.is_some();
        let block = if dspark { Block::DSPARK } else { Block::DFLASH };
        // The library's DSPARK heads from before the setting have a row for the last token, as its
        // DFLASH heads.
        let anchored = self.states_anchor().unwrap_or(block.anchored && !of_library);
        let block = Block { anchored: dspark && anchored, ..block };
        let size = self.block_setting("block_size").and_then(Json::as_u64);
        match size.and_then(|size| usize::try_from(size).ok()).or(self.block_size) {
            // The library counts rows in every kind of head.
            Some(rows) if of_library => Block { rows, ..block },
            Some(size) => block.with_size(size),
            None => block.with_size(block.rows),
        }
    }
}

impl ModelFacts {
    /// Whether it is a DSPARK head without a Markov head that proposes from its first row on: it
    /// has the tensors of a DFLASH head, and is none.
    pub fn is_anchor_first(&self) -> bool {
        self.is_plain_dspark() && self.config.block_of(true).anchored
    }

    /// Whether it is a DSPARK head without a Markov head.
    pub fn is_plain_dspark(&self) -> bool {
        let is_markov = |name: &str| MARKOV.iter().any(|own| name.contains(own));
        let has_none = match (self.config.has_markov_head(), self.tensor_names()) {
            (Some(has), _) => !has,
            (None, Some(mut names)) => !names.any(is_markov),
            (None, None) => false,
        };
        has_none && self.drafts_with() == Some("DSPARK")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DraftHead, ModelFacts, TensorHeaders};

    fn config(text: &str) -> ModelConfig {
        ModelConfig::parse(text).expect("a config")
    }

    /// The tensors that a DFLASH head and a DSPARK head without a Markov head have in common.
    fn plain() -> TensorHeaders {
        let header = crate::model::TensorHeader { dtype: "BF16".into(), shape: vec![8] };
        TensorHeaders([("hidden_norm.weight".to_owned(), header)].into_iter().collect())
    }

    fn check(text: &str, algorithm: &str, rows: usize, drafts: usize) {
        let config = config(text);
        let block = config.block().expect("a block head");
        assert_eq!((block.rows, block.depth_of(block.rows)), (rows, drafts), "{text}");
        let head = DraftHead::detect(&config, &plain()).and_then(|head| head.algorithm());
        assert_eq!(head.map(|(_, algorithm)| algorithm), Some(algorithm), "{text}");
        assert_eq!(config.draft_algorithm(), Some(algorithm), "{text}");
        let facts = ModelFacts { config, tensors: Some(plain()), ..ModelFacts::default() };
        assert_eq!(facts.drafts_with(), Some(algorithm), "{text}");
    }

    #[test]
    fn a_head_proposes_from_its_first_row_if_it_says_so_whatever_its_tensors() {
        // DeepSpec's releases under the name of DFlash.
        check(
            r#"{"architectures": ["Qwen3DSparkModel"], "markov_rank": 0, "enable_confidence_head": false, "block_size": 7,
                "target_layer_ids": [1, 9], "mask_token_id": 151669, "num_anchors": 512}"#,
            "DSPARK",
            7,
            7,
        );
        // The speculators library, `markov_rank` 0.
        let library = r#""architectures": ["DSparkDraftModel"], "speculators_model_type": "dspark", "markov_rank": 0"#;
        check(&format!(r#"{{{library}, "block_size": 8, "sample_from_anchor": true}}"#), "DSPARK", 8, 8);
        check(&format!(r#"{{{library}, "block_size": 8, "sample_from_anchor": false}}"#), "DSPARK", 8, 7);
        check(&format!(r#"{{{library}, "block_size": 8}}"#), "DSPARK", 8, 7);
        // The class of z-lab's heads, and a projector of another kind.
        let nested = r#"{"architectures": ["DFlashDraftModel"], "block_size": 7, "dflash_config": {"#;
        check(&format!(r#"{nested} "projector_type": "dspark"}}}}"#), "DSPARK", 7, 7);
        check(&format!(r#"{nested} "sample_from_anchor": true}}}}"#), "DSPARK", 7, 7);
        check(&format!(r#"{nested} "projector_type": "dflash"}}}}"#), "DFLASH", 7, 6);
    }

    #[test]
    fn the_row_of_the_last_token_has_two_names() {
        let class = r#""architectures": ["Qwen3DSparkModel"], "block_size": 7"#;
        check(&format!(r#"{{{class}, "dspark_bonus_anchor": true}}"#), "DSPARK", 8, 7);
        check(&format!(r#"{{{class}, "dspark_bonus_anchor": false}}"#), "DSPARK", 7, 7);
        check(&format!(r#"{{{class}, "dspark_config": {{"sample_from_anchor": false}}}}"#), "DSPARK", 8, 7);
        check(&format!(r#"{{{class}, "sample_from_anchor": null}}"#), "DSPARK", 7, 7);
        check(
            &format!(r#"{{{class}, "dspark_config": {{"dspark_bonus_anchor": null}}, "dspark_bonus_anchor": true}}"#),
            "DSPARK",
            8,
            7,
        );
        check(r#"{"architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": {}}"#, "DFLASH", 8, 7);
    }

    #[test]
    fn a_head_that_looks_like_another_is_known_by_settings_and_names_of_tensors() {
        let facts = |text: &str, tensors: Option<TensorHeaders>| {
            let facts = ModelFacts { config: config(text), tensors, ..ModelFacts::default() };
            (facts.is_plain_dspark(), facts.is_anchor_first())
        };
        let class = r#"{"architectures": ["Qwen3DSparkModel"]"#;
        assert_eq!(facts(&format!(r#"{class}, "markov_rank": 0}}"#), None), (true, true));
        assert_eq!(facts(&format!(r#"{class}, "markov_rank": 0, "sample_from_anchor": false}}"#), None), (true, false));
        assert_eq!(facts(&format!(r#"{class}, "markov_rank": 64}}"#), None), (false, false));
        assert_eq!(facts(&format!("{class}}}"), None), (false, false), "nothing is known");
        assert_eq!(facts(&format!("{class}}}"), Some(plain())), (true, true));
        assert_eq!(facts(r#"{"architectures": ["DFlashDraftModel"]}"#, Some(plain())), (false, false));
    }
}
