//! Maps launches of an embedded text back to the enclosing text: spans, and how edits are written
//! there.

use std::{rc::Rc, sync::Arc};

use schemas::{
    diagnostic::Edit,
    finding::Finding,
    text::{Located, Source, Span},
};

use super::{
    Argument, Insertion, Launch, Parsed, Setting, Value,
    context::TextContext,
    document::{Document, TextOrigin, UNKNOWN},
    kind::TextKind,
    span_map::{MappedPart, SpanMap},
};

/// The pieces of a document that is assembled from parts of the enclosing text.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces(pub SpanMap<()>);

impl TextOrigin for Pieces {
    fn place(&self, span: Span) -> Span {
        self.0.place(span)
    }

    fn back(&self, outer: &Source, document: &Document, parsed: Parsed) -> Parsed {
        let mapping = Mapping { around: outer, document, pieces: &self.0 };
        Parsed {
            launches: parsed.launches.into_iter().map(|launch| mapping.launch(launch)).collect(),
            findings: parsed.findings.into_iter().map(|found| mapping.finding(found)).collect(),
        }
    }
}

impl Document {
    /// A verbatim part of a text.
    pub fn part_of(source: &Source, span: Span, kind: TextKind, context: TextContext) -> Self {
        let text = source.slice(span).to_owned();
        let mut pieces = SpanMap::default();
        pieces.push(MappedPart { text: Span::new(0, text.len()), place: span, whole: span.start, with: () });
        Self::new(kind, text, Rc::new(Pieces(pieces)), context)
    }
}

/// A document and its enclosing text.
struct Mapping<'a> {
    around: &'a Source,
    document: &'a Document,
    pieces: &'a SpanMap<()>,
}

impl Mapping<'_> {
    fn place(&self, span: Span) -> Span {
        self.pieces.place(span)
    }

    /// Whether a part of the document corresponds to one contiguous part of the enclosing text.
    fn is_one_stretch(&self, span: Span) -> bool {
        self.pieces.is_of_one_whole(span)
    }

    fn launch(&self, mut launch: Launch) -> Launch {
        launch.insertion = self.insertion(&launch);
        launch.span = self.place(launch.span);
        launch.anchor = self.place(launch.anchor);
        launch.program.iter_mut().for_each(|word| self.value(word));
        launch.settings.values_mut().for_each(|setting| self.setting(setting));
        launch.arguments.iter_mut().for_each(|argument| self.argument(argument));
        let environment = Arc::make_mut(&mut launch.environment);
        environment.values_mut().for_each(|variable| self.value(variable));
        launch.engine_version =
            launch.engine_version.map(|version| Located::new(version.value, self.place(version.span)));
        self.document.surround(&mut launch);
        launch
    }

    /// Maps a value back; an unknown value is shown as the user wrote it.
    fn value(&self, value: &mut Located<Value>) {
        value.span = self.place(value.span);
        if value.value.known().is_none_or(|text| text.contains(UNKNOWN)) {
            value.value = Value::Unknown(self.around.slice(value.span).to_owned());
        }
    }

    fn argument(&self, argument: &mut Argument) {
        let is_positional = argument.is_positional();
        argument.span = self.place(argument.span);
        argument.flag.span = self.place(argument.flag.span);
        argument.values.iter_mut().for_each(|value| self.value(value));
        if let Some(value) = argument.values.first().filter(|_| is_positional) {
            argument.flag.value = value.value.written().to_owned();
        }
    }

    fn setting(&self, setting: &mut Setting) {
        let is_whole = setting.value.is_none_or(|value| self.is_one_stretch(value));
        let first = setting.values.first().map_or(setting.span, |value| value.span);
        setting.removal = [setting.removal, setting.span]
            .into_iter()
            .find(|span| self.is_one_stretch(*span))
            .map_or_else(|| Span::new(self.place(setting.span).start, 0), |span| self.place(span));
        setting.value = setting.value.map(|value| self.place(if is_whole { value } else { first }));
        setting.span = self.place(setting.span);
        setting.flag = self.place(setting.flag);
        for value in &mut setting.values {
            self.value(value);
            // Rules must not edit values assembled from two places.
            if !is_whole {
                value.value = Value::Unknown(value.value.written().to_owned());
            }
        }
    }

    /// After the same word, with the text before that word in the enclosing text.
    fn insertion(&self, launch: &Launch) -> Insertion {
        let Insertion { at, before, after, writing } = launch.insertion.clone();
        let last = launch.arguments.iter().filter(|argument| argument.span.end <= at);
        let last = last.max_by_key(|argument| argument.span.end).map(|argument| argument.span.start);
        let like_last = last.and_then(|start| {
            let blanks = Span::new(start.checked_sub(before.len())?, start);
            let is_like = self.document.text.get(blanks.range()) == Some(before.as_str());
            // Tabs that the shell removes follow the last of these.
            let end = self.place(Span::new(start, at)).start;
            (is_like && self.is_one_stretch(Span::new(blanks.start, at)))
                .then(|| self.around.slice(Span::new(self.place(blanks).start, end)).to_owned())
        });
        let behind = Span::new(at.saturating_sub(1), at);
        let before = like_last.filter(|blanks| !blanks.is_empty()).unwrap_or(before);
        Insertion { at: self.place(behind).end, before, after, writing }
    }

    fn finding(&self, mut finding: Finding) -> Finding {
        finding.fix = finding.fix.filter(|fix| fix.edits.iter().all(|edit| self.is_one_stretch(edit.span)));
        let edits = finding.fix.iter_mut().flat_map(|fix| &mut fix.edits);
        edits.for_each(|Edit { span, .. }| *span = self.place(*span));
        finding.related.iter_mut().for_each(|related| related.span = self.place(related.span));
        finding.span = self.place(finding.span);
        finding
    }
}
