//! Here-documents that contain a script or YAML, as the shell expands them.

use std::{rc::Rc, sync::Arc};

use schemas::text::{Located, Source, Span};

use super::{
    super::{
        document::{Document, Surroundings, UNKNOWN},
        shell::{self, Chunk, Operator, SimpleCommand, WordPart, WordParts},
        span_map::{MappedPart, SpanMap},
    },
    Interpreter, Used,
    destination::{PipelineStage, kind_of},
};
use crate::{
    Value,
    command::{CommandText, Field},
    context::TextContext,
    detect::{self, names_engine},
    kind::TextKind,
    origin::Pieces,
    quoting::is_plain,
};

/// Maximum number of here-documents per text.
const MOST_DOCUMENTS: usize = 256;

/// A Python name that is written in place of an unknown value.
const UNKNOWN_NAME: &str = "__outer__";

/// Maximum number of bytes that expansion may add to one document.
const MOST_FILLED: usize = 1 << 16;

impl<'a> Interpreter<'a> {
    /// Keeps a here-document if a command runs it.
    pub(super) fn document(&mut self, document: &shell::HereDocument<'a>) {
        if self.documents.len() >= MOST_DOCUMENTS || self.read_into_variable(document) {
            return;
        }
        let stages: Vec<PipelineStage<'a>> = document
            .stages
            .iter()
            .map(|command| PipelineStage {
                words: self.expand_all(&command.words, &mut Used::default()),
                writes: command
                    .writes
                    .as_ref()
                    .map(|file| Located::new(self.text(&file.parts, file.span, &mut Used::default()), file.span)),
            })
            .collect();
        let Some(kind) = kind_of(&stages, self.source.slice(document.body)) else { return };
        let mut used = Used::default();
        let (text, pieces) = self.filled(document, kind, &mut used);
        match names_engine(&text) {
            true => self.mark(&used),
            // A config file names its engine only in its keys.
            false if kind == TextKind::Yaml => {}
            false => return,
        }
        let words: Vec<Field<'a>> = stages.into_iter().flat_map(|stage| stage.words).collect();
        let (surroundings, version) = (self.around(&words), self.version_among(&words));
        let document = Document::new(kind, text, Rc::new(Pieces(pieces)), TextContext::default());
        self.documents.push(Document { surroundings, version, ..document });
    }

    /// Keeps a program for Python that a command runs from a word: `python3 -c '…'`. The shell
    /// expands nothing in it.
    pub(super) fn python(&mut self, inside: Span, command: &SimpleCommand<'a>) {
        if self.documents.len() >= MOST_DOCUMENTS {
            return;
        }
        let words = self.expand_all(&command.words, &mut Used::default());
        let (surroundings, version) = (self.around(&words), self.version_among(&words));
        let mut filled = Filled { whole: inside.start, ..Filled::default() };
        filled.write(self.source.slice(inside), inside, inside.start);
        let Filled { text, pieces, .. } = filled;
        let document = Document::new(TextKind::Python, text, Rc::new(Pieces(pieces)), TextContext::default());
        self.documents.push(Document { surroundings, version, ..document });
    }

    /// The environment of a document that is passed to commands: exports of this script may be
    /// missing there, or have another value.
    fn around(&self, words: &[Field<'a>]) -> Surroundings {
        let exported = self.exported.iter();
        let unknown = exported
            .map(|(name, value)| (name.clone(), Located::new(Value::Unknown(format!("${name}")), value.span)))
            .collect();
        let mut surroundings =
            Surroundings { environment: Arc::new(unknown), is_open: false, image: detect::image_of(words) };
        surroundings.add(words);
        surroundings
    }

    /// The text of a document, and its map back to the source.
    fn filled(&self, document: &shell::HereDocument<'a>, kind: TextKind, used: &mut Used<'a>) -> (String, SpanMap<()>) {
        let mut filled = Filled { whole: document.body.start, ..Filled::default() };
        for chunk in shell::chunks(self.source.text(), document) {
            match chunk {
                Chunk::Text(span) => filled.write(self.source.slice(span), span, filled.whole),
                // The script reader handles it, and reports problems after it.
                Chunk::Continuation(span) if kind == TextKind::Script => {
                    filled.write(self.source.slice(span), span, filled.whole);
                }
                Chunk::Continuation(_) => {}
                Chunk::Expansion(part, span) => self.fill(part, span, kind, &mut filled, used),
            }
        }
        (filled.text, filled.pieces)
    }

    /// Writes the shell's expansion at `span`.
    fn fill(&self, part: WordPart<'a>, span: Span, kind: TextKind, filled: &mut Filled, used: &mut Used<'a>) {
        let bytes_of = |fields: &[Field<'a>]| fields.iter().map(|field| field.value.written().len() + 1).sum();
        if let Some(fields) = self.words_behind(&part, used).filter(|fields| filled.takes(bytes_of(fields))) {
            for (number, field) in fields.iter().enumerate() {
                if number > 0 {
                    filled.text.push(' ');
                }
                filled.write_word(self.source, field);
            }
            return;
        }
        let value = match part {
            // A sequence's numbers are on separate lines, which end a command.
            WordPart::Sequence { .. } | WordPart::Elements(_) | WordPart::Printed { .. } | WordPart::Opaque => None,
            part => self.text(&WordParts::One(part), span, used).known().map(str::to_owned),
        };
        let quoted = filled.text.ends_with(['"', '\'']);
        match value.filter(|value| quoted || !value.contains(char::is_whitespace)) {
            Some(value) if filled.takes(value.len()) => filled.write(&value, span, filled.whole),
            // Outside a text of Python, a name that nothing assigns.
            _ if kind == TextKind::Python && !filled.is_in_text() => filled.write(UNKNOWN_NAME, span, filled.whole),
            _ => filled.write(UNKNOWN, span, filled.whole),
        }
    }

    /// The words of a variable or an array, if each is written verbatim at its own span.
    fn words_behind(&self, part: &WordPart<'a>, used: &mut Used<'a>) -> Option<Vec<Field<'a>>> {
        let fields = match part {
            WordPart::Variable { name, operator: Operator::Value | Operator::Default, .. } => {
                let scalar = self.scalars.get(*name)?;
                let fields = scalar.words.certain(&self.gone)?;
                let is_flag = fields.first()?.value.written().starts_with('-');
                let agrees = |text: &str| text.split_whitespace().eq(fields.iter().map(|field| field.value.written()));
                // A single value maps to the place where it is used.
                if (fields.len() < 2 && !is_flag) || !scalar.value.known().is_some_and(agrees) {
                    return None;
                }
                used.scalars.push(name);
                fields
            }
            WordPart::Elements(name) => {
                let at = *self.current.get(name)?;
                let (mut fields, mut conditional) = (Vec::new(), Vec::new());
                self.arrays.get(at)?.expand(&self.gone, &mut fields, &mut conditional);
                if !conditional.is_empty() {
                    return None;
                }
                used.arrays.push(at);
                fields
            }
            _ => return None,
        };
        let is_plain = |field: &Field<'a>| match &field.value {
            CommandText::Known(text) => is_plain(text) && self.source.slice(field.span) == text,
            CommandText::Unknown(_) => false,
        };
        fields.iter().all(is_plain).then_some(fields)
    }
}

/// A document under expansion.
#[derive(Default)]
struct Filled {
    text: String,
    pieces: SpanMap<()>,
    /// Start of the document.
    whole: usize,
    /// Number of bytes that expansion has added.
    added: usize,
    /// The whole that was written last, and the offset reached in it.
    last: Option<(usize, usize)>,
}

impl Filled {
    fn write(&mut self, text: &str, place: Span, whole: usize) {
        if text.is_empty() {
            return;
        }
        let start = self.text.len();
        self.text.push_str(text);
        self.last = Some((whole, place.end));
        self.pieces.push(MappedPart { text: Span::new(start, self.text.len()), place, whole, with: () });
    }

    /// Writes a word of a list. It belongs to the same whole as the previous word if only blanks
    /// separate the two.
    fn write_word(&mut self, source: &Source, field: &Field<'_>) {
        let follows = self.last.is_some_and(|(whole, end)| {
            let between = source.text().get(end..field.span.start).unwrap_or("x");
            whole != self.whole && between.trim_matches([' ', '\t', '\r', '\n', '\\']).is_empty()
        });
        let whole = self.last.filter(|_| follows).map_or(field.span.start, |(whole, _)| whole);
        self.write(field.value.written(), field.span, whole);
    }

    /// Whether a quote is open in the last line.
    fn is_in_text(&self) -> bool {
        let line = self.text.rsplit('\n').next().unwrap_or_default();
        let is_open = |quote: char| line.matches(quote).count() % 2 == 1;
        is_open('"') || is_open('\'')
    }

    /// Reserves `bytes` for an expansion; false if the limit would be exceeded.
    fn takes(&mut self, bytes: usize) -> bool {
        let added = self.added + bytes;
        let fits = added <= MOST_FILLED;
        if fits {
            self.added = added;
        }
        fits
    }
}
