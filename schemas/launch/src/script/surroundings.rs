//! Words before a program that define its environment: containers, jobs, images.

use std::sync::Arc;

use schemas::text::{Located, Span};
use serde_json::Value as Json;

use crate::{
    Environment, Value,
    command::Field,
    document::Surroundings,
    programs::{self, ProgramRole},
};

/// Maximum number of exported variables: each launch gets a copy of them.
pub(super) const MOST_EXPORTED: usize = 128;

/// Maximum length of the description of a runtime environment, in bytes.
const LONGEST_JSON: usize = 1 << 14;

impl Surroundings {
    /// Adds the variables that the words before a program set. A container has those alone that its
    /// options name.
    pub fn add(&mut self, before: &[Field<'_>]) {
        let (mut in_container, mut of_env) = (false, false);
        let mut outside: Option<Arc<Environment>> = None;
        let mut words = before.iter();
        while let Some(word) = words.next() {
            let Some(text) = word.value.known() else {
                let written = word.value.written();
                // An option whose value is set elsewhere may set any variable.
                self.is_open |= ["--env", "--export", "--runtime-env"].iter().any(|option| written.starts_with(option));
                continue;
            };
            in_container |= programs::has(text, ProgramRole::Container);
            of_env |= text == "env";
            if outside.is_none() && programs::has(text, ProgramRole::Runtime) {
                outside = Some(std::mem::take(&mut self.environment));
            }
            let (option, tied) = match text.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (text, None),
            };
            let mut value = || match tied {
                Some(value) => Some(Located::new(Some(value), word.span)),
                None => words.next().map(|next| Located::new(next.value.known(), next.span)),
            };
            match option {
                // Elsewhere these are other programs' options: `-e` of a shell, of `sed`, of
                // `xterm`.
                "-e" | "--env" if in_container => {
                    let Some(value) = value() else { return };
                    let passed = value.value.and_then(|name| outside.as_ref()?.get_key_value(name));
                    match passed {
                        Some((name, variable)) => self.insert(name, variable.value.clone(), variable.span),
                        None => self.assignment(value),
                    }
                }
                "-u" | "--unset" if of_env => {
                    let Some(name) = value().and_then(|value| value.value) else { continue };
                    Arc::make_mut(&mut self.environment).remove(name);
                }
                "--export" => {
                    let Some(value) = value() else { return };
                    let Some(names) = value.value else {
                        self.is_open = true;
                        continue;
                    };
                    for one in names.split(',').filter(|one| one.contains('=')).take(MOST_EXPORTED) {
                        self.assignment(Located::new(Some(one), value.span));
                    }
                }
                "--runtime-env-json" => {
                    let Some(value) = value() else { return };
                    self.runtime_environment(value);
                }
                "--env-file" | "--runtime-env" => self.is_open = true,
                _ => {}
            }
        }
    }

    /// Leaves of a command's variables those that it sets itself, in `inside`, and adds those that
    /// a container around it gets.
    pub fn enter(&mut self, container: &Self, inside: Span) {
        let is_inside =
            |variable: &Located<Value>| inside.start <= variable.span.start && variable.span.end <= inside.end;
        let environment = Arc::make_mut(&mut self.environment);
        environment.retain(|_, variable| is_inside(variable));
        for (name, variable) in container.environment.iter() {
            environment.entry(name.clone()).or_insert_with(|| variable.clone());
        }
        self.is_open |= container.is_open;
    }

    /// `NAME=value`, or the `NAME` of a variable that is passed on.
    fn assignment(&mut self, word: Located<Option<&str>>) {
        let Some(text) = word.value else {
            self.is_open = true;
            return;
        };
        match text.split_once('=') {
            Some((name, value)) => self.insert(name, Value::Known(value.to_owned()), word.span),
            // Passed on: it keeps the value that the text gives it.
            None if self.environment.contains_key(text) => {}
            None => self.insert(text, Value::Unknown(format!("${text}")), word.span),
        }
    }

    /// Ray's `{"env_vars": {"NAME": "value"}}`.
    fn runtime_environment(&mut self, json: Located<Option<&str>>) {
        let read =
            json.value.filter(|text| text.len() <= LONGEST_JSON).and_then(|text| serde_json::from_str(text).ok());
        let Some(read) = read.filter(Json::is_object) else {
            self.is_open = true;
            return;
        };
        for (name, value) in read.get("env_vars").and_then(Json::as_object).into_iter().flatten() {
            let value = match value.as_str() {
                Some(text) => Value::Known(text.to_owned()),
                None => Value::Unknown(value.to_string()),
            };
            self.insert(name, value, json.span);
        }
    }

    fn insert(&mut self, name: &str, value: Value, span: Span) {
        if self.environment.len() < MOST_EXPORTED || self.environment.contains_key(name) {
            Arc::make_mut(&mut self.environment).insert(name.to_owned(), Located::new(value, span));
        }
    }
}
