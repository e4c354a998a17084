//! Launches in here-documents, with every place in the text around them.

use std::sync::Arc;

use super::{
    Argument, Engine, Insertion, Launch, Options, Parsed, Setting, Value, arguments, comments,
    script::{self, Document, Kind, UNKNOWN},
    yaml,
};
use crate::{
    diagnostic::{Diagnostic, Edit},
    text::{Located, Source, Span},
};

/// How deep here-documents in here-documents are read.
pub(super) const DEEPEST: usize = 3;

/// Reads what a here-document holds. `depth` is that of the text around it.
pub(super) fn read(document: &Document, around: &Source, options: &Options, depth: usize) -> Parsed {
    let version = document.version.filter(|_| options.engine != Some(Engine::Vllm));
    let inner = Options { engine: options.engine, version: options.version.or(version.map(|version| version.value)) };
    let source = source_of(document);
    let parsed = match document.kind {
        Kind::Script => arguments::parse(&source, &inner, depth + 1),
        Kind::Yaml => yaml::parse(&source, &inner, depth + 1).unwrap_or_default(),
    };
    // What is amiss in a text without a launch is nobody's business.
    if parsed.launches.is_empty() {
        return Parsed::default();
    }
    let origin = Origin { around, document };
    Parsed {
        launches: parsed.launches.into_iter().map(|launch| origin.launch(launch)).collect(),
        diagnostics: parsed.diagnostics.into_iter().map(|found| origin.diagnostic(found)).collect(),
    }
}

/// The comments in the here-documents of a script that stands itself in `depth` of them.
pub(super) fn comments_in(around: &Source, depth: usize) -> Vec<Span> {
    if depth >= DEEPEST || !around.text().contains("<<") {
        return Vec::new();
    }
    let of_document = |document: Document| {
        let found = comments::within(&source_of(&document), depth + 1);
        found.into_iter().map(move |span| document.pieces.place(span))
    };
    script::read(around).documents.into_iter().flat_map(of_document).collect()
}

/// The document as a text of its own.
fn source_of(document: &Document) -> Source {
    let name = match document.kind {
        Kind::Script => "here-document.sh",
        Kind::Yaml => "here-document.yaml",
    };
    Source::new(name, document.text.as_str())
}

/// A here-document and the text that it stands in.
struct Origin<'a> {
    around: &'a Source,
    document: &'a Document,
}

impl Origin<'_> {
    fn place(&self, span: Span) -> Span {
        self.document.pieces.place(span)
    }

    /// Whether an edit of a part of the document is one of a stretch of the text around it.
    fn is_one_stretch(&self, span: Span) -> bool {
        self.document.pieces.is_of_one_whole(span)
    }

    fn launch(&self, mut launch: Launch) -> Launch {
        launch.insertion = self.insertion(&launch);
        launch.span = self.place(launch.span);
        launch.anchor = self.place(launch.anchor);
        launch.settings.values_mut().for_each(|setting| self.setting(setting));
        launch.arguments.iter_mut().for_each(|argument| self.argument(argument));
        let environment = Arc::make_mut(&mut launch.environment);
        environment.values_mut().for_each(|variable| self.value(variable));
        for (name, variable) in self.document.surroundings.environment.iter() {
            environment.entry(name.clone()).or_insert_with(|| variable.clone());
        }
        launch.environment_is_open |= self.document.surroundings.is_open;
        launch.engine_version = match launch.engine_version {
            Some(version) => Some(Located::new(version.value, self.place(version.span))),
            None => self.document.version.filter(|_| matches!(launch.engine, Engine::Sglang | Engine::Slime)),
        };
        launch
    }

    /// A value with its place; what is not known is told in the user's words.
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
            // No rule is to change what stands in two places.
            if !is_whole {
                value.value = Value::Unknown(value.value.written().to_owned());
            }
        }
    }

    /// Behind the same word, with what stands before that word in the text around.
    fn insertion(&self, launch: &Launch) -> Insertion {
        let Insertion { at, before, after, writing } = launch.insertion.clone();
        let last = launch.arguments.iter().filter(|argument| argument.span.end <= at);
        let last = last.max_by_key(|argument| argument.span.end).map(|argument| argument.span.start);
        let like_last = last.and_then(|start| {
            let blanks = Span::new(start.checked_sub(before.len())?, start);
            let is_like = self.document.text.get(blanks.range()) == Some(before.as_str());
            // Tabs that the shell takes out stand behind the last of them.
            let end = self.place(Span::new(start, at)).start;
            (is_like && self.is_one_stretch(Span::new(blanks.start, at)))
                .then(|| self.around.slice(Span::new(self.place(blanks).start, end)).to_owned())
        });
        let behind = Span::new(at.saturating_sub(1), at);
        let before = like_last.filter(|blanks| !blanks.is_empty()).unwrap_or(before);
        Insertion { at: self.place(behind).end, before, after, writing }
    }

    fn diagnostic(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        diagnostic.fix = diagnostic.fix.filter(|fix| fix.edits.iter().all(|edit| self.is_one_stretch(edit.span)));
        let edits = diagnostic.fix.iter_mut().flat_map(|fix| &mut fix.edits);
        edits.for_each(|Edit { span, .. }| *span = self.place(*span));
        diagnostic.related.iter_mut().for_each(|related| related.span = self.place(related.span));
        diagnostic.span = self.place(diagnostic.span);
        diagnostic
    }
}
