//! Compares the weights that a tuned file was measured with with those that are loaded.
//!
//! A hash of a checkpoint is one of its files, with words after it for the form in which the
//! weights are loaded. In place of it there may be a rule for look-ups as JSON, or a name where the
//! measuring machine did not have the files; names are not compared.

use super::Provenance;

/// The digits of a hash of files.
const DIGITS: usize = 16;

impl Provenance {
    /// In what loaded weights differ from the measured ones, one line for each model. `draft` is
    /// `None` if there is none, or if it is not known.
    pub fn other_weights(&self, target: &str, draft: Option<&str>) -> Vec<String> {
        // Servers of other engines quantise by themselves, and the hash does not say how.
        self.differences(Some(target), draft, self.engine.starts_with("spectune"))
    }

    /// The same for the files of checkpoints, in whatever form another engine loads them; `None`
    /// where there are none.
    pub fn other_files(&self, target: Option<&str>, draft: Option<&str>) -> Vec<String> {
        self.differences(target, draft, false)
    }

    fn differences(&self, target: Option<&str>, draft: Option<&str>, compares_form: bool) -> Vec<String> {
        let models = [("target", &self.target_hash, target), ("draft", &self.draft_hash, draft)];
        let difference = |(model, measured, loaded): (&str, &String, Option<&str>)| {
            difference(model, measured, loaded?, compares_form)
        };
        models.into_iter().filter_map(difference).collect()
    }
}

fn difference(model: &str, measured: &str, loaded: &str, compares_form: bool) -> Option<String> {
    let (of_files, loaded_files) = (files(measured), files(loaded));
    let again = "figures and choices of this file may not hold: give the measured weights, or sweep again with these";
    match (of_files, loaded_files) {
        (Some((before, _)), Some((now, _))) if before != now => {
            Some(format!("it was measured with other weights of the {model} (hash {before}, here {now}); {again}"))
        }
        (Some((_, before)), Some((_, now))) if before != now && compares_form => Some(format!(
            "it was measured with the same weights of the {model} in another form ({}, here {}); figures and choices of \
             this file may not hold: load them as they were measured, or sweep again",
            form(before),
            form(now)
        )),
        (Some(_), None) | (None, Some(_)) if is_rule(measured) || is_rule(loaded) => {
            Some(format!("it was measured with another kind of {model} ({measured}, here {loaded}); {again}"))
        }
        (None, None) if is_rule(measured) && is_rule(loaded) && measured != loaded => {
            Some(format!("it was measured with another rule for look-ups ({measured}, here {loaded}); {again}"))
        }
        _ => None,
    }
}

/// The hash of files, and the words after it.
fn files(hash: &str) -> Option<(&str, &str)> {
    let (files, form) = hash.split_once(' ').unwrap_or((hash, ""));
    (files.len() == DIGITS && files.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some((files, form))
}

fn is_rule(hash: &str) -> bool {
    hash.starts_with('{')
}

fn form(words: &str) -> &str {
    if words.is_empty() { "as they are stored" } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef";
    const OTHER: &str = "f123456789abcdef";

    #[test]
    fn other_weights_are_named_and_what_is_not_known_is_not() {
        let check = |measured: [&str; 2], loaded: (&str, Option<&str>), expected: &[&str]| {
            let provenance = Provenance {
                engine: "spectune 0.2.0".into(),
                target_hash: measured[0].into(),
                draft_hash: measured[1].into(),
                ..Provenance::default()
            };
            let found = provenance.other_weights(loaded.0, loaded.1);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (line, words) in found.iter().zip(expected) {
                assert!(line.contains(words), "{words}: {line}");
            }
        };
        let as_fp8 = format!("{ONE} as fp8");
        let rule = r#"{"look_up":{"longest":3}}"#;
        check([ONE, OTHER], (ONE, Some(OTHER)), &[]);
        check(
            [ONE, OTHER],
            (OTHER, Some(OTHER)),
            &["weights of the target (hash 0123456789abcdef, here f123456789abcdef)"],
        );
        check([ONE, OTHER], (OTHER, Some(ONE)), &["target", "weights of the draft"]);
        check([ONE, OTHER], (ONE, None), &[]);
        check([&as_fp8, ""], (ONE, Some(ONE)), &["of the target in another form (as fp8, here as they are stored)"]);
        check([&as_fp8, ""], (&format!("{OTHER} as fp8"), None), &["other weights of the target"]);
        check([ONE, rule], (ONE, Some(rule)), &[]);
        check([ONE, rule], (ONE, Some(r#"{"look_up":{"longest":4}}"#)), &["another rule for look-ups"]);
        check([ONE, rule], (ONE, Some(OTHER)), &["another kind of draft"]);
        for unknown in ["", "org/model", "random llama", "0123", "ééééé"] {
            check([unknown, unknown], (ONE, Some(ONE)), &[]);
        }
    }

    #[test]
    fn the_form_counts_only_where_the_measured_engine_states_it() {
        let measured = Provenance { engine: "sglang 0.5.16".into(), target_hash: ONE.into(), ..Provenance::default() };
        assert!(measured.other_weights(&format!("{ONE} with fp8 products"), None).is_empty());
        assert_eq!(measured.other_weights(OTHER, None).len(), 1);
        let measured = Provenance { engine: "spectune 0.2.0".into(), target_hash: format!("{ONE} as fp8"), ..measured };
        assert!(measured.other_files(Some(ONE), None).is_empty() && measured.other_files(None, None).is_empty());
        assert_eq!(measured.other_files(Some(OTHER), None).len(), 1);
    }
}
