//! How edits write words at their place: for a shell, in TOML, in YAML, or for a shell inside YAML.

use schemas::flags::{Key, Takes};

use super::quoting::{is_plain, quoted};

/// How a value is written at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writing {
    pub form: WritingForm,
    /// Separator between two words.
    pub between: String,
}

/// The syntax of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritingForm {
    /// Shell words, which may be inside a YAML scalar.
    Shell(Option<Quotes>),
    /// A value of TOML.
    Toml,
    /// A value of a YAML mapping whose keys are flags.
    Config {
        /// Whether the keys are written `speculative_num_steps`, not `speculative-num-steps`.
        underscores: bool,
        /// Whether several words are written in brackets.
        brackets: bool,
    },
    /// Keywords of a call in Python.
    Keywords,
    /// Items of a YAML list of words.
    Items {
        /// Whether flag and value are one item, `--flag=value`.
        tied: bool,
    },
    /// A part of a YAML scalar.
    Inside(Quotes),
}

/// The delimiters of a YAML scalar's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quotes {
    /// None: line ends fold.
    Plain,
    /// `'…'`.
    Single,
    /// `"…"`.
    Double,
    /// The lines below a `|`.
    Block,
}

impl Writing {
    /// Keywords of a call in Python.
    pub fn keywords() -> Self {
        Self { form: WritingForm::Keywords, between: ", ".into() }
    }

    /// Words of a shell.
    pub fn shell(quotes: Option<Quotes>) -> Self {
        Self { form: WritingForm::Shell(quotes), between: " ".into() }
    }

    /// TOML.
    pub fn toml() -> Self {
        Self { form: WritingForm::Toml, between: ", ".into() }
    }

    /// A flag, given with its dashes, as spelled at such a place.
    pub fn name(&self, flag: &str) -> String {
        match self.form {
            WritingForm::Toml | WritingForm::Keywords => flag.trim_start_matches('-').replace('-', "_"),
            WritingForm::Config { underscores: true, .. } => flag.trim_start_matches('-').replace('-', "_"),
            WritingForm::Config { .. } => flag.trim_start_matches('-').to_owned(),
            WritingForm::Shell(_) | WritingForm::Items { .. } | WritingForm::Inside(_) => flag.to_owned(),
        }
    }

    /// A flag, as [`name`](Self::name) writes it, with its value.
    pub fn flag(&self, key: Key, name: &str, value: &str) -> String {
        match self.form {
            WritingForm::Toml => format!("{name} = {}", self.value(key, value)),
            WritingForm::Keywords => format!("{name}={}", self.value(key, value)),
            WritingForm::Config { .. } => format!("{name}: {}", self.value(key, value)),
            _ if value.is_empty() => name.to_owned(),
            WritingForm::Items { tied: true } if !takes_several(key) => yaml_text(&format!("{name}={value}")),
            WritingForm::Shell(_) | WritingForm::Items { .. } | WritingForm::Inside(_) => {
                format!("{name}{}{}", self.between, self.value(key, value))
            }
        }
    }

    /// The blank-separated words of a value, as written at such a place.
    pub fn value(&self, key: Key, value: &str) -> String {
        let words: Vec<&str> = if takes_several(key) { value.split_whitespace().collect() } else { vec![value] };
        let joined = |write: &dyn Fn(&str) -> String| {
            words.iter().map(|word| write(word)).collect::<Vec<_>>().join(&self.between)
        };
        match self.form {
            WritingForm::Shell(quotes) => {
                // Each of several words may be a substitution such as `$(seq 1 8)`.
                let text = if takes_several(key) { value.to_owned() } else { quoted(value) };
                quotes.map_or(text.clone(), |quotes| quotes.enclose(&text))
            }
            WritingForm::Toml => match key.flag().takes {
                Takes::Nothing => "true".into(),
                Takes::Integer | Takes::Size | Takes::Number => value.to_owned(),
                Takes::Integers => format!("[{}]", joined(&str::to_owned)),
                Takes::Texts => format!("[{}]", joined(&toml_text)),
                Takes::Text | Takes::Choice(_) => toml_text(value),
            },
            WritingForm::Keywords => match key.flag().takes {
                Takes::Nothing => "True".into(),
                Takes::Integer | Takes::Size | Takes::Number => value.to_owned(),
                Takes::Integers => format!("[{}]", joined(&str::to_owned)),
                Takes::Texts => format!("[{}]", joined(&python_text)),
                Takes::Text | Takes::Choice(_) => python_text(value),
            },
            WritingForm::Config { brackets, .. } => match key.flag().takes {
                Takes::Nothing => "true".into(),
                Takes::Integer | Takes::Size | Takes::Number => value.to_owned(),
                Takes::Integers if brackets => format!("[{}]", joined(&str::to_owned)),
                Takes::Integers => joined(&str::to_owned),
                Takes::Texts if brackets => format!("[{}]", joined(&yaml_text)),
                Takes::Text | Takes::Choice(_) | Takes::Texts => joined(&yaml_text),
            },
            WritingForm::Items { .. } => joined(&yaml_text),
            WritingForm::Inside(quotes) => quotes.enclose(value),
        }
    }
}

impl Quotes {
    /// A text as written inside such a scalar.
    pub fn enclose(self, text: &str) -> String {
        match self {
            Self::Plain | Self::Block => text.to_owned(),
            Self::Single => text.replace('\'', "''"),
            Self::Double => text.replace('\\', r"\\").replace('"', "\\\""),
        }
    }
}

fn takes_several(key: Key) -> bool {
    matches!(key.flag().takes, Takes::Integers | Takes::Texts)
}

fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A string of Python. Escapes of JSON are those of Python.
fn python_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A scalar that every YAML parser reads as a string, never as a number, a boolean or null.
fn yaml_text(text: &str) -> String {
    let says_more = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"];
    let bare = text.trim_start_matches(['-', '+', '.']);
    let is_text = bare.starts_with(|first: char| first.is_ascii_alphabetic())
        || (text.starts_with('/') || text.starts_with("./") || text.starts_with("../"));
    let is_word = says_more.iter().any(|word| bare.eq_ignore_ascii_case(word));
    // A comma would end the scalar in brackets, and a percent sign starts a directive.
    if is_plain(text) && is_text && !is_word && !text.contains([',', '%', '@']) && !text.ends_with(':') {
        return text.to_owned();
    }
    // Every JSON string is a YAML string.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts_in_yaml() {
        for (text, expected) in [
            ("fa3", "fa3"),
            ("EAGLE3", "EAGLE3"),
            ("--dtype=half", "--dtype=half"),
            ("/models/x", "/models/x"),
            ("org/model-7B", "org/model-7B"),
            ("8", "\"8\""),
            ("0.5", "\"0.5\""),
            ("-1", "\"-1\""),
            ("yes", "\"yes\""),
            (".inf", "\".inf\""),
            ("a: b", "\"a: b\""),
            ("a,b", "\"a,b\""),
            ("", "\"\""),
            ("say \"x\"\n", "\"say \\\"x\\\"\\n\""),
        ] {
            assert_eq!(yaml_text(text), expected);
        }
    }
}
