//! Edits of a launch in the user's text, from which fixes are built.

use schemas::{
    diagnostic::Edit,
    flags::{self, Key, Lookup},
    text::Span,
    version::EngineVersion,
};

use super::{Engine, Launch, Syntax, vllm, writing::Writing};

impl Launch {
    /// The flag of a key as this launch's user writes it: `--dtype`, `--sglang-dtype`, or `dtype`
    /// in TOML. A name that is written and that the engine has is kept. `version` is the engine's,
    /// since flags were renamed.
    pub fn spelled(&self, key: Key, version: EngineVersion) -> String {
        if let Some(written) = self.written(key, version) {
            return self.as_written(written);
        }
        let name = match self.callee.and_then(|callee| callee.keyword_for(key, version)) {
            Some(keyword) => return keyword.to_owned(),
            None if self.engine == Engine::Spectune => key.flag().name,
            None if self.engine == Engine::Vllm => vllm::name_of(key).unwrap_or_else(|| key.flag().name),
            None => key.name_in(version),
        };
        match self.syntax {
            Syntax::Toml => self.as_written(&format!("--{name}")),
            _ => self.as_written(&self.dashed(key, name)),
        }
    }

    /// The name under which a key is given, if the version's parser has it.
    fn written(&self, key: Key, version: EngineVersion) -> Option<&str> {
        let written = self.setting(key)?.spelling.as_str();
        let is_own = match self.engine {
            _ if self.callee.is_some() => false,
            // The draft's place is within the JSON of the speculative configuration.
            Engine::Vllm => key != Key::SpeculativeDraftModelPath,
            Engine::Slime | Engine::Spectune => false,
            Engine::Sglang => {
                let name = written.trim_start_matches('-').replace('_', "-");
                matches!(flags::lookup(&name, Some(version)), Lookup::Exact(_) | Lookup::Abbreviation(_))
            }
        };
        is_own.then_some(written)
    }

    /// A flag as written in this launch: with dashes, or without them if flags are keys of a file.
    pub fn as_written(&self, flag: &str) -> String {
        self.insertion.writing.name(flag)
    }

    /// The flag of a key as this launch's engine spells it on a command line.
    pub(super) fn dashed(&self, key: Key, name: &str) -> String {
        match key {
            _ if self.engine != Engine::Slime => format!("--{name}"),
            Key::ModelPath => "--hf-checkpoint".into(),
            _ if key.flag().of_slime => format!("--{name}"),
            _ => format!("--sglang-{name}"),
        }
    }

    /// The edit that sets a key (`value` is blank-separated words; empty for a switch): replaces
    /// the current value, or adds the flag.
    pub fn set(&self, key: Key, version: EngineVersion, value: &str) -> Edit {
        match self.setting(key) {
            Some(setting) => match setting.value {
                Some(span) => Edit { span, replacement: setting.writing.value(key, value) },
                None => {
                    let end = Span::new(setting.span.end, setting.span.end);
                    let between = &setting.writing.between;
                    Edit { span: end, replacement: format!("{between}{}", setting.writing.value(key, value)) }
                }
            },
            None => self.add(key, version, value),
        }
    }

    /// The edit that adds a flag after the others.
    pub fn add(&self, key: Key, version: EngineVersion, value: &str) -> Edit {
        let insertion = &self.insertion;
        let flag = insertion.writing.flag(key, &self.spelled(key, version), value);
        Edit {
            span: Span::new(insertion.at, insertion.at),
            replacement: format!("{}{flag}{}", insertion.before, insertion.after),
        }
    }

    /// A flag with its value as this launch's user writes them: `--sglang-dtype float16`, or
    /// `dtype = "float16"` in TOML.
    pub fn line(&self, key: Key, version: EngineVersion, value: &str) -> String {
        let writing = match self.syntax {
            _ if self.callee.is_some() => self.insertion.writing.clone(),
            Syntax::Toml | Syntax::YamlConfig | Syntax::YamlOverrides => self.insertion.writing.clone(),
            Syntax::CommandLine | Syntax::ShellArray | Syntax::YamlWords | Syntax::Composed => Writing::shell(None),
        };
        writing.flag(key, &self.spelled(key, version), value)
    }

    /// The edit that removes a flag and its values, if the launch has it.
    pub fn remove(&self, key: Key) -> Option<Edit> {
        let setting = self.setting(key)?;
        Some(Edit { span: setting.removal, replacement: String::new() })
    }
}
