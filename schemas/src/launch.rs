//! A launch: a configuration as a user writes it for an engine.

use std::collections::BTreeMap;

use crate::{
    flags::Key,
    text::{Located, Span},
};

/// The engine that a launch is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// SGLang's own flags.
    Sglang,
    /// slime (and miles): SGLang's flags behind `--sglang-`.
    Slime,
    /// vLLM.
    Vllm,
    /// spectune's built-in engine.
    Spectune,
}

/// How the launch is written, which decides how a fix is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// A command line, possibly over several continued lines.
    CommandLine,
    /// A shell array: `SGLANG_ARGS=( … )`.
    ShellArray,
    /// Our TOML.
    Toml,
}

/// One launch, as written.
#[derive(Clone, Debug)]
pub struct Launch {
    /// For which engine.
    pub engine: Engine,
    /// In which form.
    pub syntax: Syntax,
    /// The whole launch in the source; findings about absent flags point at its [`anchor`](Self::anchor).
    pub span: Span,
    /// The few words that stand for the launch in a diagnostic: the program's name, or the array's.
    pub anchor: Span,
    /// The flags that spectune knows, the last one where a flag is given twice (as argparse does).
    pub settings: BTreeMap<Key, Setting>,
    /// Every argument in order, known or not.
    pub arguments: Vec<Argument>,
    /// Environment variables set in front of the command or exported before it.
    pub environment: BTreeMap<String, Located<Value>>,
}

/// One flag with its values, as written.
#[derive(Clone, Debug)]
pub struct Argument {
    /// The flag as written, dashes included, without `=value`.
    pub flag: Located<String>,
    /// What it means, where spectune knows it.
    pub key: Option<Key>,
    /// The words that belong to it.
    pub values: Vec<Located<Value>>,
    /// Flag and values together.
    pub span: Span,
}

/// A flag that spectune knows, with its place.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its words.
    pub values: Vec<Located<Value>>,
    /// The flag's own place.
    pub flag: Span,
    /// Flag and values together.
    pub span: Span,
    /// The flag as written, dashes included: old spellings are seen here.
    pub spelling: String,
}

/// A word of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Its text is known.
    Known(String),
    /// It depends on something that is set elsewhere, such as `$MODEL_DIR`; rules that need it are held back.
    Unknown(String),
}

impl Value {
    /// The text, where it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Unknown(_) => None,
        }
    }
}

impl Launch {
    /// The setting of a key, if the launch gives it.
    pub fn setting(&self, key: Key) -> Option<&Setting> {
        self.settings.get(&key)
    }

    /// Whether the launch gives the key at all (even with an unknown value).
    pub fn has(&self, key: Key) -> bool {
        self.settings.contains_key(&key)
    }

    /// The first word of a key's value, where it is known.
    pub fn text(&self, key: Key) -> Option<Located<&str>> {
        let word = self.setting(key)?.values.first()?;
        Some(Located::new(word.value.known()?, word.span))
    }

    /// The value of a key as an integer, where it is one.
    pub fn integer(&self, key: Key) -> Option<Located<i64>> {
        let word = self.text(key)?;
        Some(Located::new(word.value.parse().ok()?, word.span))
    }

    /// The value of a key as a number, where it is one.
    pub fn number(&self, key: Key) -> Option<Located<f64>> {
        let word = self.text(key)?;
        Some(Located::new(word.value.parse().ok()?, word.span))
    }

    /// All words of a key as integers; none if one of them is unknown or no integer.
    pub fn integers(&self, key: Key) -> Option<Vec<Located<i64>>> {
        let words = &self.setting(key)?.values;
        words.iter().map(|word| Some(Located::new(word.value.known()?.parse().ok()?, word.span))).collect()
    }
}
