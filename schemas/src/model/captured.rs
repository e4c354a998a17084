//! The layers of the target whose stream a head reads, under the names that published heads have
//! for them. The engine and the linter read the same.

use serde_json::Value as Json;

use super::ModelConfig;

/// Number of hidden states that an EAGLE-3 head reads if its config names no layers.
pub const DEFAULT_STATES: usize = 3;

/// Lists of layers at the top level of a config.json, in `dflash_config` and in `dspark_config`.
const LISTS: [(&str, LayerCount); 4] = [
    ("target_layer_ids", LayerCount::Outputs),
    // AngelSlim's.
    ("aux_hidden_states_layer_ids", LayerCount::Outputs),
    // The speculators library's, of block heads and of EAGLE-3 heads.
    ("aux_hidden_state_layer_ids", LayerCount::Entries),
    ("eagle_aux_hidden_state_layer_ids", LayerCount::Entries),
];

/// What the ids of a list count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCount {
    /// The stream after a layer; −1 is the embedding.
    Outputs,
    /// The stream before a layer.
    Entries,
    /// What SGLang makes of `eagle_config` for the target's family: mostly outputs.
    ByFamily,
}

/// A list of layers in a config.json.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedList {
    /// Where it is, such as `dflash_config.target_layer_ids`.
    pub name: String,
    /// As written.
    pub ids: Vec<i64>,
    /// What they count.
    pub count: LayerCount,
}

impl CapturedList {
    /// The layers before which the stream is captured; `None` if it depends on the target's family.
    pub fn entries(&self) -> Option<Vec<i64>> {
        match self.count {
            LayerCount::Outputs => Some(self.ids.iter().map(|id| id.saturating_add(1)).collect()),
            LayerCount::Entries => Some(self.ids.clone()),
            LayerCount::ByFamily => None,
        }
    }

    /// Whether it is the list that SGLang reads of an EAGLE-3 head.
    pub fn is_of_eagle_config(&self) -> bool {
        self.count == LayerCount::ByFamily
    }
}

impl ModelConfig {
    /// All lists of layers that a head names. An empty one is no list: trainers leave it where the
    /// default holds.
    ///
    /// # Errors
    /// With the name and the value of what is no list of integers.
    pub fn captured_lists(&self) -> Result<Vec<CapturedList>, String> {
        let ids = |ids: &Option<Vec<usize>>| ids.as_ref().map(|ids| Json::from(ids.clone()));
        let (dflash, eagle) = (self.dflash_config.as_ref(), self.eagle_config.as_ref());
        let mut found = Vec::new();
        let by_family = eagle.and_then(|eagle| ids(&eagle.eagle_aux_hidden_state_layer_ids));
        found.push(("eagle_config.", "eagle_aux_hidden_state_layer_ids", LayerCount::ByFamily, by_family));
        for (name, count) in LISTS {
            let outer = match name {
                "aux_hidden_state_layer_ids" => ids(&self.aux_hidden_state_layer_ids),
                "eagle_aux_hidden_state_layer_ids" => ids(&self.eagle_aux_hidden_state_layer_ids),
                _ => self.other.get(name).cloned(),
            };
            let dspark = self.other.get("dspark_config").and_then(|dspark| dspark.get(name)).cloned();
            let of_eagle = eagle.and_then(|eagle| eagle.other.get(name)).cloned();
            found.push(("dflash_config.", name, count, dflash.and_then(|dflash| dflash.other.get(name)).cloned()));
            found.extend([("dspark_config.", name, count, dspark), ("", name, count, outer)]);
            found.push(("eagle_config.", name, count, of_eagle));
        }
        let stated = found.into_iter().filter_map(|(within, name, count, value)| {
            let value = value.filter(|value| !value.is_null() && value.as_array().is_none_or(|ids| !ids.is_empty()))?;
            Some((format!("{within}{name}"), count, value))
        });
        stated
            .map(|(name, count, value)| {
                let ids = value.as_array().and_then(|ids| ids.iter().map(Json::as_i64).collect());
                match ids {
                    Some(ids) => Ok(CapturedList { name, ids, count }),
                    None => Err(format!("{name} is {value}, expected a list of layers")),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_layers_are_found_under_every_published_name() {
        let entries = |text: &str| {
            let lists = ModelConfig::parse(text).expect("a config").captured_lists().expect("lists");
            let [list] = lists.as_slice() else { panic!("{text}: {lists:?}") };
            (list.name.clone(), list.entries())
        };
        for (text, name, expected) in [
            // DeepSpec, AngelSlim, the speculators library, ModelOpt.
            (r#"{"target_layer_ids": [-1, 9]}"#, "target_layer_ids", Some(vec![0, 10])),
            (r#"{"aux_hidden_states_layer_ids": [0, 2]}"#, "aux_hidden_states_layer_ids", Some(vec![1, 3])),
            (r#"{"aux_hidden_state_layer_ids": [1, 3]}"#, "aux_hidden_state_layer_ids", Some(vec![1, 3])),
            (r#"{"eagle_aux_hidden_state_layer_ids": [0]}"#, "eagle_aux_hidden_state_layer_ids", Some(vec![0])),
            (
                r#"{"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1]}}"#,
                "eagle_config.eagle_aux_hidden_state_layer_ids",
                None,
            ),
            (r#"{"dflash_config": {"target_layer_ids": [1]}}"#, "dflash_config.target_layer_ids", Some(vec![2])),
            (r#"{"eagle_config": {"target_layer_ids": [1]}}"#, "eagle_config.target_layer_ids", Some(vec![2])),
        ] {
            assert_eq!(entries(text), (name.to_owned(), expected));
        }
    }

    #[test]
    fn an_empty_list_is_none_and_what_is_no_list_is_named() {
        let read = |text: &str| ModelConfig::parse(text).expect("a config").captured_lists();
        assert_eq!(read(r#"{"eagle_config": {"eagle_aux_hidden_state_layer_ids": []}}"#), Ok(vec![]));
        assert_eq!(read(r#"{"target_layer_ids": null, "dflash_config": null}"#), Ok(vec![]));
        let wrong = read(r#"{"target_layer_ids": [1, "x"]}"#);
        assert_eq!(wrong, Err(r#"target_layer_ids is [1,"x"], expected a list of layers"#.into()));
    }
}
