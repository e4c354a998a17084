//! JSON in the words of a launch, and what keeps an engine from reading it.

use schemas::{
    finding::Finding,
    text::{Located, Source, Span},
};

use super::{
    Value,
    context::{TextContext, TextForm},
    placeholder::is_in_json,
    problems,
};

/// The JSON that is given to a flag.
#[derive(Clone, Copy)]
pub(super) struct GivenJson<'a> {
    pub source: &'a Source,
    pub context: &'a TextContext,
    pub flag: &'a str,
    pub word: &'a Located<Value>,
    /// The text of the word.
    pub text: &'a str,
}

impl GivenJson<'_> {
    /// Why it cannot be read; `None` where something else fills in a part of it. `example` says how
    /// to write it for a shell, and `note` what the engine says.
    pub fn unreadable(&self, error: &serde_json::Error, example: &str, note: Option<String>) -> Option<Finding> {
        let Self { source, context, flag, word, text } = *self;
        let at = place_of_error(text, error);
        if is_in_json(text, at.start) || (context.fills_in && text.contains('$')) {
            return None;
        }
        if is_bare_in_shell(source, word) {
            // Whoever passes on what a list says quotes it.
            return (!context.is_list).then(|| taken_apart(context, flag, word, text, example));
        }
        let stated = error.to_string();
        let what = stated.split(" at line ").next().unwrap_or_default();
        let message = format!("the JSON of `{flag}` cannot be read: {what}");
        let mut finding = problems::JSON_SYNTAX.at(place_of(source, word, text, at), message, "here");
        finding.notes.extend(note);
        finding.help = Some(example.into());
        Some(finding.by_quoting())
    }
}

/// Whether JSON is unquoted in a shell's text.
fn is_bare_in_shell(source: &Source, word: &Located<Value>) -> bool {
    let written = source.slice(word.span);
    // Words of a variable keep their quotes and arrive verbatim.
    written.starts_with('{') && written.contains('"') && !word.value.written().contains('"')
}

/// JSON without quotes around it, of which a shell takes its own.
fn taken_apart(context: &TextContext, flag: &str, word: &Located<Value>, text: &str, example: &str) -> Finding {
    let is_unit = context.form == TextForm::Unit;
    let (who, what) = if is_unit { ("systemd", format!("`{}`", shown(text))) } else { ("the shell", arrives(text)) };
    let message = format!("{who} removes the quotes from the JSON of `{flag}`: {what} arrives");
    let mut finding = problems::JSON_SYNTAX.at(word.span, message, "not in quotes");
    finding.help = Some(if is_unit { example.replace(" for the shell", "") } else { example.into() });
    finding.by_quoting()
}

/// What arrives of bare JSON: where there is a comma in braces, bash makes a word of each side.
fn arrives(text: &str) -> String {
    let inside = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).filter(|inside| inside.contains(','));
    match inside {
        Some(inside) if !inside.contains(['{', '}']) => {
            let words: Vec<String> = inside.split(',').take(4).map(|word| format!("`{}`", shown(word))).collect();
            format!("bash splits it into words, and {}", words.join(" "))
        }
        _ => format!("`{}`", shown(text)),
    }
}

/// The beginning of a text, for a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Where the JSON's reader stopped.
pub(super) fn place_of_error(text: &str, error: &serde_json::Error) -> Span {
    let before = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let at = (before + error.column().saturating_sub(1)).min(text.len().saturating_sub(1));
    let start = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let width = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    Span::new(start, start + width)
}

/// The place of a part of a word's text; the word's own where the text does not stand there as it
/// is.
pub(super) fn place_of(source: &Source, word: &Located<Value>, text: &str, part: Span) -> Span {
    let written = source.slice(word.span);
    match written.find(text).filter(|_| !text.is_empty()) {
        Some(at) => {
            let start = word.span.start + at;
            Span::new(start + part.start, start + part.end)
        }
        None => word.span,
    }
}
