//! The value of a variable: its text, and the words that an unquoted use expands to.

use schemas::text::{Located, Source, Span};

use super::{
    super::{
        compose::Composed,
        shell::{self, Chunk, HereDocument, Operator, WordPart, WordParts, printed_document},
    },
    Interpreter, Used,
    control_flow::{Conditional, Elements},
};
use crate::{
    command::{CommandText, Field},
    document::UNKNOWN,
};

/// Maximum length, in bytes, of a text that is kept for a command that parses it again.
const LONGEST_LITERAL: usize = 1 << 16;

/// A text split into words.
#[derive(Default)]
pub(super) struct WordSplit<'a> {
    pub fields: Vec<Field<'a>>,
    pub conditional: Vec<Conditional>,
    /// The raw text, quotes included, for `eval` and similar commands.
    pub literal: Composed,
    /// Whether the text is known in one branch only, and absent in the others.
    pub is_open: bool,
    /// The word that is being read.
    current: Option<Current>,
}

struct Current {
    text: String,
    place: Span,
    is_known: bool,
}

impl<'a> WordSplit<'a> {
    fn push(&mut self, text: &str, place: Span, is_known: bool) {
        let current = self.current.get_or_insert_with(|| Current { text: String::new(), place, is_known: true });
        current.text.push_str(text);
        current.place = current.place.join(place);
        current.is_known &= is_known;
    }

    /// Adds verbatim text at a span. A shell that splits it does not remove quotes from it.
    fn verbatim(&mut self, source: &'a Source, place: Span) {
        let text = source.slice(place);
        let mut at = place.start;
        for part in text.split_inclusive([' ', '\t', '\n', '\r']) {
            let word = part.trim_end_matches([' ', '\t', '\n', '\r']);
            if !word.is_empty() {
                self.push(word, Span::new(at, at + word.len()), true);
            }
            if word.len() < part.len() {
                self.end_word(source);
            }
            at += part.len();
        }
    }

    fn end_word(&mut self, source: &'a Source) {
        let Some(Current { text, place, is_known }) = self.current.take() else { return };
        let value = match is_known {
            true if source.slice(place) == text => CommandText::Known(source.slice(place).into()),
            true => CommandText::Known(text.into()),
            false => CommandText::Unknown(source.slice(place).into()),
        };
        self.fields.push(Located::new(value, place));
    }
}

impl<'a> Interpreter<'a> {
    /// Splits the text of a word, without its own quotes, as a shell splits the result of an
    /// expansion.
    pub(super) fn split_value(&mut self, span: Span, used: &mut Used<'a>) -> WordSplit<'a> {
        let source = self.source;
        let mut split = WordSplit::default();
        self.split_chunks(shell::chunks_of_word(source.text(), span), &mut split, used, true);
        split.end_word(source);
        self.words += split.fields.len();
        split
    }

    /// Splits the body of a here-document in the same way.
    pub(super) fn split_document(&mut self, document: &HereDocument<'a>, used: &mut Used<'a>) -> WordSplit<'a> {
        let source = self.source;
        let mut split = WordSplit::default();
        self.split_chunks(shell::chunks(source.text(), document), &mut split, used, false);
        split.end_word(source);
        self.words += split.fields.len();
        split
    }

    /// `is_outside`: not in a here-document, so that one in the chunks is read.
    fn split_chunks(
        &mut self,
        chunks: Vec<Chunk<'a>>,
        split: &mut WordSplit<'a>,
        used: &mut Used<'a>,
        is_outside: bool,
    ) {
        let source = self.source;
        for chunk in chunks {
            match chunk {
                Chunk::Text(place) => {
                    split.literal.copy(source.slice(place), place);
                    split.verbatim(source, place);
                }
                Chunk::Continuation(_) => {}
                Chunk::Expansion(WordPart::Printed { body, is_verbatim, strips_tabs, .. }, _)
                    if is_outside && self.has_room() =>
                {
                    let document = printed_document(body, is_verbatim, strips_tabs);
                    let inner = shell::chunks(source.text(), &document);
                    self.bytes.set(self.bytes.get() + body.end - body.start);
                    self.split_chunks(inner, split, used, false);
                }
                Chunk::Expansion(part, place) => self.fill_in(part, place, split, used),
            }
        }
    }

    /// The common case of an assignment's value: one word without anything that a shell would
    /// interpret.
    pub(super) fn plain_value(&mut self, span: Span) -> Option<WordSplit<'a>> {
        let written = self.source.slice(span);
        let means = |byte: u8| matches!(byte, b'"' | b'\'' | b'\\' | b'$' | b'`') || byte.is_ascii_whitespace();
        if written.is_empty() || written.bytes().any(means) {
            return None;
        }
        self.words += 1;
        Some(WordSplit { fields: vec![Located::new(CommandText::Known(written.into()), span)], ..WordSplit::default() })
    }

    fn fill_in(&mut self, part: WordPart<'a>, place: Span, split: &mut WordSplit<'a>, used: &mut Used<'a>) {
        let source = self.source;
        if split.current.is_none() && self.has_room() && self.list_of(&part, split, used) {
            return;
        }
        let value = match part {
            WordPart::Elements(_) | WordPart::Printed { .. } | WordPart::Opaque => None,
            part => self.text(&WordParts::One(part), place, used).known().map(str::to_owned),
        };
        let Some(value) = value.filter(|_| self.has_room()) else {
            split.literal.copy(UNKNOWN, place);
            return split.push("", place, false);
        };
        self.bytes.set(self.bytes.get() + value.len());
        split.literal.copy(&value, place);
        for part in value.split_inclusive(char::is_whitespace) {
            let word = part.trim_end();
            if !word.is_empty() {
                split.push(word, place, true);
            }
            if word.len() < part.len() {
                split.end_word(source);
            }
        }
    }

    /// Adds the words of a variable or an array, each at its own span.
    fn list_of(&mut self, part: &WordPart<'a>, split: &mut WordSplit<'a>, used: &mut Used<'a>) -> bool {
        let from = split.fields.len();
        match part {
            WordPart::Variable { name, operator: Operator::Value | Operator::Default, .. } => {
                let Some(scalar) = self.scalars.get(*name).filter(|scalar| scalar.words.is_list()) else {
                    return false;
                };
                used.scalars.push(name);
                scalar.words.expand(&self.gone, &mut split.fields, &mut split.conditional);
                match &scalar.literal {
                    Some(literal) => split.literal.append(literal),
                    None => split.is_open = true,
                }
            }
            WordPart::Elements(name) => {
                let Some((at, elements)) = self.current.get(name).and_then(|at| Some((*at, self.arrays.get(*at)?)))
                else {
                    return false;
                };
                used.arrays.push(at);
                elements.expand(&self.gone, &mut split.fields, &mut split.conditional);
                split.is_open |= !split.conditional.is_empty();
                for field in split.fields.get(from..).unwrap_or_default() {
                    split.literal.space();
                    split.literal.copy(field.value.known().unwrap_or(UNKNOWN), field.span);
                }
            }
            _ => return false,
        }
        let added = split.fields.get(from..).unwrap_or_default();
        self.bytes.set(self.bytes.get() + added.iter().map(|field| field.value.written().len()).sum::<usize>());
        self.words += added.len();
        true
    }

    /// The text of a split word for a command that parses it again, if it is known.
    pub(super) fn literal_of(split: &WordSplit<'a>) -> Option<Composed> {
        let is_kept = !split.is_open && split.literal.text.len() <= LONGEST_LITERAL;
        (is_kept && split.literal.text.contains(char::is_whitespace)).then(|| split.literal.clone())
    }
}

impl<'a> Elements<'a> {
    /// The words, if they are the same on every path.
    pub fn certain(&self, gone: &[super::control_flow::Branch]) -> Option<Vec<Field<'a>>> {
        let (mut fields, mut conditional) = (Vec::new(), Vec::new());
        self.expand(gone, &mut fields, &mut conditional);
        conditional.is_empty().then_some(fields)
    }
}
