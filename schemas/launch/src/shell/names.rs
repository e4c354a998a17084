//! The names in a word that a launch keeps as it is written, because their values are set
//! elsewhere.

use std::collections::BTreeSet;

use schemas::text::Span;

use super::{Chunk, Operator, WordPart, chunks_of_word};

/// The variables that a word needs and that have no default; `None` if a shell computes a part of
/// it (`$(date)`, `$1`).
pub fn unset_names(word: &str) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for chunk in chunks_of_word(word, Span::new(0, word.len())) {
        if let Chunk::Expansion(part, _) = chunk {
            collect(&part, &mut names)?;
        }
    }
    Some(names)
}

fn collect(part: &WordPart<'_>, names: &mut BTreeSet<String>) -> Option<()> {
    match part {
        WordPart::Text(_) | WordPart::Sequence { .. } => {}
        WordPart::Elements(name) => _ = names.insert((*name).to_owned()),
        // The default may itself be a variable.
        WordPart::Variable { operator: Operator::Default, argument, .. } if !argument.is_empty() => {
            argument.iter().try_for_each(|part| collect(part, names))?;
        }
        WordPart::Variable { name, .. } if name.starts_with(|first: char| first.is_ascii_digit()) => return None,
        WordPart::Variable { name, .. } => _ = names.insert((*name).to_owned()),
        WordPart::Printed { .. } | WordPart::Arithmetic(_) | WordPart::Opaque => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_default_are_found() {
        let names = |word: &str| unset_names(word).map(|names| names.into_iter().collect::<Vec<_>>().join(" "));
        assert_eq!(names("\"$VENV/bin/${TOOL}\"").as_deref(), Some("TOOL VENV"));
        assert_eq!(names("${A:-${B}}/x '$C'").as_deref(), Some("B"));
        assert_eq!(names("${A:-1}").as_deref(), Some(""));
        for computed in ["$(date)", "`date`", "$1", "\"$@\"", "${A%/*}"] {
            assert_eq!(names(computed), None, "{computed}");
        }
    }
}
