//! Commands: which of them may start an engine, with which words, and in what they run.

use std::sync::Arc;

use super::{
    super::{
        detect,
        shell::{Assignment, Command, Operator, Part, Parts, Word},
    },
    Interpreter, MOST_LINES, Scalar, Used, anything,
    inside::only_talks,
    line::{ArrayPlace, Field, Line},
    surroundings::Surroundings,
    ways::ways,
};
use crate::text::Located;

impl<'a> Interpreter<'a> {
    pub(super) fn command(&mut self, command: &Command<'a>, nesting: usize) {
        let first = command.words.first().and_then(Word::text);
        let declares = matches!(first, Some("export" | "declare" | "local" | "readonly" | "typeset"));
        if command.words.is_empty() || declares {
            for assignment in &command.assignments {
                let field = self.assign(assignment);
                if first == Some("export") {
                    self.export(assignment.name, field);
                }
            }
            if first == Some("export") {
                self.export_by_name(command);
            }
            return;
        }
        if matches!(first, Some("for" | "select" | "read"))
            && let Some(name) = command.words.get(1).and_then(Word::name)
        {
            self.order += 1;
            let value = anything(&name);
            let scalar = Scalar { value, fields: Vec::new(), gone: Vec::new(), used: true, order: self.order };
            self.scalars.insert(name, scalar);
            return;
        }
        self.note_requirement(command);
        // A command without a flag is no launch; what it names stays to be looked at by itself.
        if self.lines.len() >= MOST_LINES || !command.words.iter().any(may_hold_flag) {
            return;
        }
        let mut used = Used::default();
        let words = match first {
            Some("eval") => self.evaluated(&command.words, &mut used),
            _ => self.expand_all(&command.words, &mut used),
        };
        if !words.iter().any(|word| has_flag(word.value.written())) {
            return;
        }
        if first.is_some_and(only_talks) {
            self.mark(&used);
            return;
        }
        let arrays: Vec<ArrayPlace> = used
            .arrays
            .iter()
            .filter_map(|at| self.arrays.get(*at))
            .flat_map(|elements| &elements.places)
            .cloned()
            .collect();
        self.mark(&used);
        let mut looked_inside = false;
        for way in ways(words, &used.conditional, &self.gone) {
            let mut line = Line {
                words: way.words,
                perhaps: way.perhaps,
                branches: way.branches,
                arrays: arrays.clone(),
                ..Line::default()
            };
            if let Some(detected) = detect::detect(&line, None) {
                let before = line.words.get(..detected.first_argument).unwrap_or_default();
                let mut surroundings = self.surroundings(&command.assignments);
                surroundings.add(before);
                line.version = self.version_beside(before);
                line.surroundings = surroundings;
            } else if !std::mem::replace(&mut looked_inside, true) {
                self.look_inside(command, nesting);
            }
            self.lines.push(line);
        }
    }

    /// `eval "$COMMAND"` takes a variable's words as if it had no quotes.
    fn evaluated(&mut self, words: &[Word<'a>], used: &mut Used<'a>) -> Vec<Field<'a>> {
        let bare = |word: &Word<'a>| match word.parts.as_slice() {
            [Part::Variable { name, operator: Operator::Value, .. }] => {
                let part = Part::Variable { name, operator: Operator::Value, argument: Vec::new(), quoted: false };
                Word { parts: Parts::One(part), span: word.span }
            }
            _ => word.clone(),
        };
        let words: Vec<Word<'a>> = words.iter().map(bare).collect();
        self.expand_all(&words, used)
    }

    /// What is exported, with what stands in front of a command.
    fn surroundings(&self, own: &[Assignment<'a>]) -> Surroundings {
        let mut environment = Arc::clone(&self.exported);
        for assignment in own {
            let value = self.text(&assignment.value.parts, assignment.value.span, &mut Used::default());
            let value = Located::new(value.to_value(), assignment.value.span);
            Arc::make_mut(&mut environment).insert(assignment.name.to_owned(), value);
        }
        Surroundings { environment, is_open: false }
    }
}

/// Whether a word may hold a flag once it is expanded.
fn may_hold_flag(word: &Word<'_>) -> bool {
    word.text().is_none_or(has_flag)
}

/// Whether a word holds a flag, by itself or in a quoted command. vLLM's short one for speculation may stand alone.
fn has_flag(text: &str) -> bool {
    text.as_bytes().windows(2).any(|pair| pair == b"--")
        || text.strip_prefix("-sc").is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '=']))
}
