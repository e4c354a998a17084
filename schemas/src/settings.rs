//! `spectune.toml`: a project's settings for the linter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::Diagnostic,
    engines::Engine,
    gpu::GpuMemory,
    text::Source,
    toml_file::{self, FieldError},
    version::EngineVersion,
};

/// The name of the file, which is looked up in the folder of a launch and its parents.
pub const FILE_NAME: &str = "spectune.toml";

/// The settings of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsFile {
    /// Settings of `spectune lint`; its flags override them.
    pub lint: LintSettings,
}

/// Settings of `spectune lint`, unless its flags override them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LintSettings {
    /// Rules to run: codes, prefixes of codes, names, or areas (default: all).
    pub select: Vec<String>,
    /// Rules to skip.
    pub ignore: Vec<String>,
    /// Engine of launches whose text does not say which: sglang, slime, vllm or spectune.
    pub engine: Option<String>,
    /// The engine's version, such as "0.5.9".
    pub engine_version: Option<String>,
    /// Memory of one GPU in MiB, as nvidia-smi prints it, or the GPU's name, such as "H200".
    pub gpu_memory: Option<GpuMemory>,
    /// Requests that are expected to run together.
    pub expected_concurrency: Option<usize>,
}

impl SettingsFile {
    /// Reads a settings file. `is_selector` checks a word that selects rules.
    ///
    /// # Errors
    /// If it is not valid TOML, or has an unknown key or an invalid value.
    pub fn read(source: &Source, is_selector: impl Fn(&str) -> Result<(), String>) -> Result<Self, Box<Diagnostic>> {
        let check = |file: &Self| file.check(&is_selector).err().into_iter().collect();
        toml_file::read_checked(source, check).map_err(toml_file::first)
    }

    fn check(&self, is_selector: &impl Fn(&str) -> Result<(), String>) -> Result<(), FieldError> {
        let lint = &self.lint;
        for (key, words) in [(&["lint", "select"], &lint.select), (&["lint", "ignore"], &lint.ignore)] {
            for (at, word) in words.iter().enumerate() {
                is_selector(word).map_err(|error| FieldError::at(key, error).element(at))?;
            }
        }
        if let Some(engine) = &lint.engine {
            engine.parse::<Engine>().map_err(|error| FieldError::at(&["lint", "engine"], error.to_string()))?;
        }
        if let Some(version) = &lint.engine_version {
            let wrong = |error: String| FieldError::at(&["lint", "engine_version"], error);
            version.parse::<EngineVersion>().map_err(|error| wrong(error.to_string()))?;
        }
        Ok(())
    }
}

impl LintSettings {
    /// The engine, if given.
    pub fn engine(&self) -> Option<Engine> {
        self.engine.as_ref()?.parse().ok()
    }

    /// The engine's version, if given.
    pub fn engine_version(&self) -> Option<EngineVersion> {
        self.engine_version.as_ref()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_selector(word: &str) -> Result<(), String> {
        if ["SD", "graph", "SD081"].contains(&word) { Ok(()) } else { Err(format!("'{word}' is not a rule's code")) }
    }

    fn check(text: &str, expected: Result<(), (usize, usize, &str)>) {
        let source = Source::new(FILE_NAME, text);
        match (SettingsFile::read(&source, is_selector), expected) {
            (Ok(_), Ok(())) => {}
            (Err(found), Err((line, column, part))) => {
                let place = source.position(found.span.start);
                assert_eq!((place.line, place.column), (line, column), "{text}: {}", found.message);
                assert!(found.message.contains(part), "{}", found.message);
            }
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn settings_are_strict_and_errors_have_their_place() {
        check("", Ok(()));
        check("[lint]\nselect = [\"SD\", \"graph\"]\nignore = [\"SD081\"]\nengine_version = \"0.5.9\"\n", Ok(()));
        check("[lint]\nengine = \"vllm\"\ngpu_memory = 81559\nexpected_concurrency = 64\n", Ok(()));
        check("[lint]\ngpu_memory = \"H200\"\n", Ok(()));
        check("[lint]\nselect = [\"SD\", \"XX\"]\n", Err((2, 17, "'XX'")));
        check("[lint]\nselct = []\n", Err((2, 1, "unknown key")));
        check("[lint]\nengine = \"tgi\"\n", Err((2, 10, "not an engine")));
        check("[lint]\nengine_version = \"new\"\n", Err((2, 18, "version")));
        check("select = []\n", Err((1, 1, "unknown key")));
    }
}
