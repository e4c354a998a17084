//! Whether a checkpoint still contains the MTP layers that its config announces.

use super::ModelFacts;

impl ModelFacts {
    /// Whether the checkpoint has a tensor of an MTP layer, under any of its published names:
    /// `mtp.…` (Qwen, MiMo), a decoder layer after the last one (DeepSeek, GLM), or a part that
    /// only such layers have. `None` if the names of the tensors are not known.
    pub fn has_mtp_tensors(&self) -> Option<bool> {
        let layers = self.config.num_hidden_layers;
        Some(self.tensor_names()?.any(|name| is_of_mtp_layer(name, layers)))
    }

    /// Number of MTP layers that the config announces although their tensors are missing, as
    /// exporters and quantisers leave it. `None` if tensors of them exist, no layer is announced,
    /// or the names are not known.
    pub fn dropped_mtp_layers(&self) -> Option<usize> {
        let announced = self.config.mtp_layers().filter(|layers| *layers > 0)?;
        (!self.has_mtp_tensors()?).then_some(announced)
    }
}

fn is_of_mtp_layer(name: &str, layers: Option<usize>) -> bool {
    let mut behind_layers = false;
    for part in name.split('.') {
        if part == "mtp" || part.starts_with("mtp_") || matches!(part, "eh_proj" | "nextn" | "shared_head") {
            return true;
        }
        if behind_layers && part.parse::<usize>().is_ok_and(|number| layers.is_some_and(|layers| number >= layers)) {
            return true;
        }
        behind_layers = part == "layers";
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::model::{ModelConfig, ModelFacts, TensorIndex};

    fn check(names: &[&str], expected: Option<usize>) {
        let shards = names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        let facts = ModelFacts {
            config: ModelConfig {
                num_hidden_layers: Some(61),
                num_nextn_predict_layers: Some(1),
                ..Default::default()
            },
            index: Some(TensorIndex { shards, total_size: None }),
            ..ModelFacts::default()
        };
        assert_eq!(facts.dropped_mtp_layers(), expected, "{names:?}");
    }

    #[test]
    fn layers_behind_the_last_and_mtp_names_are_found() {
        check(&["model.layers.60.mlp.up_proj.weight", "lm_head.weight"], Some(1));
        check(&["model.layers.61.enorm.weight"], None);
        check(&["mtp.layers.0.input_layernorm.weight"], None);
        check(&["model.mtp_layers.0.input_proj.weight"], None);
        check(&["language_model.model.layers.61.self_attn.o_proj.weight"], None);
        check(&["model.visual.blocks.70.norm.weight"], Some(1));
        assert_eq!(ModelFacts::default().dropped_mtp_layers(), None);
    }
}
