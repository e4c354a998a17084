//! Variables in the words of a launch.

use std::collections::BTreeSet;

use launch::{Launch, Value};

/// Where values come from: the user, the text, the environment of this process; in this order.
pub struct Known<'a> {
    pub launch: &'a Launch,
    pub given: &'a std::collections::BTreeMap<String, String>,
}

/// Variables without a value.
#[derive(Default)]
pub struct Missing {
    names: BTreeSet<String>,
    /// Words that are not just text and variables.
    words: BTreeSet<String>,
}

impl Known<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let text = || self.launch.variable(name).map(|value| value.value.to_owned());
        self.given.get(name).cloned().or_else(text).or_else(|| std::env::var(name).ok())
    }

    /// A word as the shell expands it; `None` if something is missing.
    pub fn word(&self, value: &Value, missing: &mut Missing) -> Option<String> {
        match value {
            Value::Known(text) => Some(text.clone()),
            Value::Unknown(text) => self.expand(text, missing),
        }
    }

    /// Replaces `$NAME` and `${NAME}`, and `${NAME:-default}` of a variable without a value.
    pub fn expand(&self, text: &str, missing: &mut Missing) -> Option<String> {
        let mut rest = text.trim_matches('"');
        let mut whole = String::new();
        let mut is_complete = true;
        while let Some(at) = rest.find('$') {
            whole.push_str(&rest[..at]);
            let Some((name, default, after)) = reference(&rest[at + 1..]) else {
                missing.words.insert(text.to_owned());
                return None;
            };
            match self.value(name).or_else(|| default.map(str::to_owned)) {
                Some(value) => whole.push_str(&value),
                None => {
                    missing.names.insert(name.to_owned());
                    is_complete = false;
                }
            }
            rest = after;
        }
        if rest.contains('`') {
            missing.words.insert(text.to_owned());
            return None;
        }
        whole.push_str(rest);
        is_complete.then_some(whole)
    }
}

/// The name after a `$`, its default, and what follows.
fn reference(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let (name, default, after) = match text.strip_prefix('{') {
        Some(inside) => {
            let (inside, after) = inside.split_once('}')?;
            let (name, default) = match inside.split_once(":-").or_else(|| inside.split_once('-')) {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            (name, default, after)
        }
        None => {
            let end = text.find(|character| !is_name(character)).unwrap_or(text.len());
            (&text[..end], None, &text[end..])
        }
    };
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_plain = starts && name.chars().all(is_name) && !default.is_some_and(|default| default.contains(['$', '{']));
    is_plain.then_some((name, default, after))
}

impl Missing {
    /// What to do about them.
    pub fn told(self) -> Vec<String> {
        let names = self.names.iter().map(|name| {
            format!("the launch uses ${name}, which is set neither in the file nor in the environment: give --set {name}=VALUE")
        });
        let words = self.words.iter().map(|word| {
            format!("the word {word} of the launch is computed by the shell, and the file is not run: write its value into a copy")
        });
        names.chain(words).collect()
    }
}
