//! Edits of a launch in the user's own text: what fixes are made of.

use super::{Engine, Launch, Syntax};
use crate::{
    diagnostic::Edit,
    flags::{Key, Takes},
    text::Span,
    version::EngineVersion,
};

impl Launch {
    /// The flag of a key as this launch's user writes it: `--dtype`, `--sglang-dtype`, or `dtype` in TOML. `version` is
    /// the engine's, since flags were renamed.
    pub fn spelled(&self, key: Key, version: EngineVersion) -> String {
        let name = if self.engine == Engine::Spectune { key.flag().name } else { key.name_in(version) };
        match self.syntax {
            Syntax::Toml => name.replace('-', "_"),
            _ => self.dashed(key, name),
        }
    }

    /// The flag of a key as this launch's engine takes it on a command line.
    pub(super) fn dashed(&self, key: Key, name: &str) -> String {
        match key {
            _ if self.engine != Engine::Slime => format!("--{name}"),
            Key::ModelPath => "--hf-checkpoint".into(),
            _ if key.flag().of_slime => format!("--{name}"),
            _ => format!("--sglang-{name}"),
        }
    }

    /// The edit that gives a key a value (its words, blank-separated; empty for a switch): in place of the present one,
    /// or as a further flag.
    pub fn set(&self, key: Key, version: EngineVersion, value: &str) -> Edit {
        match self.setting(key) {
            Some(setting) => match setting.value {
                Some(span) => Edit { span, replacement: self.written(key, value) },
                None => {
                    let end = Span::new(setting.span.end, setting.span.end);
                    Edit { span: end, replacement: format!(" {}", self.written(key, value)) }
                }
            },
            None => self.add(key, version, value),
        }
    }

    /// The edit that writes a further flag behind the others.
    pub fn add(&self, key: Key, version: EngineVersion, value: &str) -> Edit {
        let insertion = &self.insertion;
        Edit {
            span: Span::new(insertion.at, insertion.at),
            replacement: format!("{}{}{}", insertion.before, self.line(key, version, value), insertion.after),
        }
    }

    /// A flag with its value as this launch's user writes them: `--sglang-dtype float16`, or `dtype = "float16"` in TOML.
    pub fn line(&self, key: Key, version: EngineVersion, value: &str) -> String {
        let flag = self.spelled(key, version);
        match self.syntax {
            Syntax::Toml => format!("{flag} = {}", self.written(key, value)),
            _ if value.is_empty() => flag,
            _ => format!("{flag} {}", self.written(key, value)),
        }
    }

    /// The edit that takes a flag and its values out, if the launch gives it.
    pub fn remove(&self, key: Key) -> Option<Edit> {
        let setting = self.setting(key)?;
        Some(Edit { span: setting.removal, replacement: String::new() })
    }

    /// The edit that writes a flag under another name, its value kept, if the launch gives it.
    pub fn respell(&self, key: Key, name: &str) -> Option<Edit> {
        Some(Edit { span: self.setting(key)?.flag, replacement: name.to_owned() })
    }

    fn written(&self, key: Key, value: &str) -> String {
        if self.syntax != Syntax::Toml {
            return match key.flag().takes {
                Takes::Integers | Takes::Texts => value.to_owned(),
                _ => quoted(value),
            };
        }
        match key.flag().takes {
            Takes::Nothing => "true".into(),
            Takes::Integer | Takes::Size | Takes::Number => value.to_owned(),
            Takes::Integers => format!("[{}]", value.split_whitespace().collect::<Vec<_>>().join(", ")),
            Takes::Texts => format!("[{}]", value.split_whitespace().map(toml_text).collect::<Vec<_>>().join(", ")),
            Takes::Text | Takes::Choice(_) => toml_text(value),
        }
    }
}

fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A word as a shell must read it: in single quotes where it holds anything that a shell would act on.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
