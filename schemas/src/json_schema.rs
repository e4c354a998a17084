//! The published JSON Schemas of spectune's TOML files, generated from the Rust types that read
//! them, so that editors complete and check exactly what spectune reads. They are draft-07, the
//! version that TOML editors support.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value as Json;

use crate::{launch_file::LaunchFile, settings::SettingsFile, sweep::SweepFile, train::TrainFile, tuned::TunedFile};

/// A kind of file with a published schema.
#[derive(Clone, Copy, Debug)]
pub struct PublishedSchema {
    /// The word on the command line: `spectune schema launch`.
    pub name: &'static str,
    /// Generates the schema from the type.
    make: fn() -> Json,
}

/// Every published schema. A new kind of file is a new line here; the test below then requires its
/// schema file.
pub const SCHEMAS: &[PublishedSchema] = &[
    PublishedSchema { name: "launch", make: schema_of::<LaunchFile> },
    PublishedSchema { name: "settings", make: schema_of::<SettingsFile> },
    PublishedSchema { name: "sweep", make: schema_of::<SweepFile> },
    PublishedSchema { name: "train", make: schema_of::<TrainFile> },
    PublishedSchema { name: "tuned", make: schema_of::<TunedFile> },
];

impl PublishedSchema {
    /// The schema with this name.
    pub fn find(name: &str) -> Option<Self> {
        SCHEMAS.iter().copied().find(|schema| schema.name == name)
    }

    /// The JSON text, as published.
    pub fn text(self) -> String {
        let mut text = serde_json::to_string_pretty(&(self.make)()).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn schema_of<T: JsonSchema>() -> Json {
    SchemaSettings::draft07().into_generator().into_root_schema_for::<T>().to_value()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    /// Set to 1 to rewrite the files instead of comparing them.
    const UPDATE: &str = "SPECTUNE_UPDATE";

    #[test]
    fn the_published_files_are_what_the_types_say() {
        for schema in SCHEMAS {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("json/{}.schema.json", schema.name));
            if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
                fs::write(&path, schema.text()).expect("the schema can be written");
            }
            let published = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                published == schema.text(),
                "{} is stale: run the tests of `schemas` with {UPDATE}=1 and commit it",
                path.display()
            );
        }
    }

    fn check(text: &str, valid: bool) {
        let schema = schema_of::<LaunchFile>();
        let validator = jsonschema::draft7::new(&schema).expect("a valid schema");
        let value: toml::Value = toml::from_str(text).expect("valid TOML");
        let value = serde_json::to_value(value).expect("TOML is JSON");
        assert_eq!(validator.is_valid(&value), valid, "{text}");
        assert_eq!(toml::from_str::<LaunchFile>(text).is_ok(), valid, "{text}");
    }

    #[test]
    fn the_schema_takes_what_the_type_takes() {
        check("model_path = \"x\"\nspeculative_num_steps = 3\ncuda_graph_bs = [1, 2]\ntrust_remote_code = true", true);
        check("engine = \"slime\"\nmem_fraction_static = 0.8\n[environment]\nA = \"1\"", true);
        check("", true);
        check("speculative_num_stps = 3", false);
        check("speculative_num_steps = \"3\"", false);
        check("engine = \"vllm\"", false);
        check("cuda_graph_bs = 4", false);
    }
}
