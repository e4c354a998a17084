//! Words of a launch whose value is not known here.

use std::collections::BTreeSet;

use launch::{Value, unset_names};

/// What is missing to start a launch.
#[derive(Debug, Default)]
pub struct Missing {
    /// Variables that are set neither in the text nor in the environment.
    names: BTreeSet<String>,
    /// Words that a shell would compute.
    words: BTreeSet<String>,
}

impl Missing {
    /// The text of a word; if it is not known, what it needs is noted.
    pub fn word(&mut self, value: &Value) -> Option<String> {
        let Value::Unknown(written) = value else { return value.known().map(str::to_owned) };
        // Specifiers of systemd are read as these variables.
        for (specifier, name) in
            [("%i", "instance"), ("%I", "instance"), ("%h", "HOME"), ("%H", "HOSTNAME"), ("%u", "USER")]
        {
            if written.contains(specifier) {
                self.names.insert(name.to_owned());
                return None;
            }
        }
        match unset_names(written).filter(|names| !names.is_empty()) {
            Some(names) => self.names.extend(names),
            None => _ = self.words.insert(written.clone()),
        }
        None
    }

    /// What to do about each.
    pub fn reasons(self) -> Vec<String> {
        let names = self.names.iter().map(|name| {
            format!(
                "the launch uses ${name}, whose value is neither in the file nor in the environment: give --set {name}=VALUE"
            )
        });
        let words = self.words.iter().map(|word| {
            format!("the word {word} of the launch is computed by the shell, and the file is not run: write its value into a copy")
        });
        names.chain(words).collect()
    }
}
