//! Configurations of supervisord: which lines belong together, and the environment of a program.

use std::sync::Arc;

use schemas::text::{Located, Source, Span};

use super::{MOST_VARIABLES, UnitEntry};
use crate::{Value, document::Surroundings};

/// The section whose variables all programs have.
const OF_ALL: &str = "supervisord";

/// A configuration with each value in one line, without comments. Each byte has its place: an
/// indented line continues the one before it, and a sign behind a blank begins a comment.
pub fn joined(source: &Source) -> Source {
    let mut text = String::with_capacity(source.text().len());
    for line in source.text().split_inclusive('\n') {
        let bare = line.trim_end_matches(['\r', '\n']);
        let is_signed =
            |at: usize| bare.get(..at).is_some_and(|before| before.is_empty() || before.ends_with([' ', '\t']));
        let comment = bare.match_indices([';', '#']).map(|(at, _)| at).find(|at| is_signed(*at));
        let (kept, rest) = bare.split_at(comment.unwrap_or(bare.len()));
        let is_blank = kept.trim().is_empty();
        let goes_on = (kept.starts_with([' ', '\t']) && !is_blank) || (is_blank && comment.is_some());
        if goes_on && text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
                text.push(' ');
            }
            text.push(' ');
        }
        text.push_str(kept);
        text.push_str(&" ".repeat(rest.len()));
        text.push_str(line.get(bare.len()..).unwrap_or_default());
    }
    Source::new(source.name(), text)
}

/// What surrounds the command of a program: the variables of all programs, and its own ones. There
/// may be more, since a program has those of supervisord itself too.
pub fn surroundings(entries: &[UnitEntry<'_>], section: &str) -> Surroundings {
    let mut found = Surroundings { is_open: true, ..Surroundings::default() };
    let environment = Arc::make_mut(&mut found.environment);
    for of in [OF_ALL, section] {
        let own = entries.iter().filter(|entry| entry.key == "environment" && entry.section == of);
        for (name, value) in own.flat_map(pairs) {
            if environment.len() < MOST_VARIABLES || environment.contains_key(name) {
                environment.insert(name.to_owned(), value);
            }
        }
    }
    found
}

/// The variables of a value: `A="1",B=2`.
fn pairs<'a>(entry: &UnitEntry<'a>) -> Vec<(&'a str, Located<Value>)> {
    let text = entry.value;
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some((name, rest)) = text.get(at..).and_then(|rest| rest.split_once('=')) {
        let name = name.trim_matches([',', ' ', '\t']);
        let start = text.len() - rest.len();
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let (value, place, end) = match quote.and_then(|quote| rest.get(1..)?.split_once(quote)) {
            Some((value, _)) => (value, start + 1, start + value.len() + 2),
            None => {
                let value = rest.split([',', ' ', '\t']).next().unwrap_or_default();
                (value, start, start + value.len())
            }
        };
        let place = entry.place.start + place;
        found.push((name, Located::new(filled(value), Span::new(place, place + value.len()))));
        at = end;
    }
    found
}

/// A value in which supervisord replaces `%(ENV_NAME)s` and the like.
fn filled(value: &str) -> Value {
    match value.contains("%(") {
        true => Value::Unknown(value.to_owned()),
        false => Value::Known(value.replace("%%", "%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, parse};

    /// The variables of each program, with their places in the text.
    fn check(text: &str, expected: &[&str]) {
        let source = Source::new("supervisord.conf", text);
        let parsed = parse(&source, &Options::default());
        let shown = |launch: &crate::Launch| {
            assert!(launch.environment_is_open);
            let own = launch.environment.iter().map(|(name, value)| {
                assert_eq!(source.slice(value.span), value.value.written(), "{name}");
                let mark = if value.value.known().is_some() { "" } else { "?" };
                format!("{name}={}{mark}", value.value.written())
            });
            let words = launch.arguments.iter().flat_map(|argument| &argument.values);
            let words = words.map(|word| word.value.written().to_owned());
            own.chain(words).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(parsed.launches.iter().map(shown).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn a_program_has_its_own_variables_and_those_of_all() {
        check(
            "[supervisord]\nenvironment=A=\"1\",B=2\n[program:one]\nenvironment=B='3', C=\"x, y\"\n\
             command=sglang serve --model-path m\n[program:two]\ncommand=vllm serve n\n",
            &["A=1 B=3 C=x, y m", "A=1 B=2 n"],
        );
    }

    #[test]
    fn indented_lines_continue_and_comments_end() {
        check(
            "[program:one]\ncommand=sglang serve\n    --model-path m ; the target\n    ; nothing\n    --tp 2\n\
             environment=\n    A=\"1\",\n    B=\"%(ENV_HOME)s/x\"\n",
            &["A=1 B=%(ENV_HOME)s/x? m 2"],
        );
    }
}
