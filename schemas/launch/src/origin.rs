//! Maps launches of an embedded text back to the enclosing text: spans, and how edits are written there.

use std::sync::Arc;

use schemas::{
    diagnostic::Edit,
    finding::Finding,
    text::{Located, Source, Span},
};

use super::{
    Argument, Insertion, Launch, Parsed, Setting, Value,
    embedded::{Document, UNKNOWN},
};

/// A document and its enclosing text.
pub(super) struct Origin<'a> {
    pub around: &'a Source,
    pub document: &'a Document,
}

impl Origin<'_> {
    /// The parse result of the document, with all spans in the enclosing text.
    pub fn back(&self, parsed: Parsed) -> Parsed {
        Parsed {
            launches: parsed.launches.into_iter().map(|launch| self.launch(launch)).collect(),
            findings: parsed.findings.into_iter().map(|found| self.finding(found)).collect(),
        }
    }

    fn place(&self, span: Span) -> Span {
        self.document.pieces.place(span)
    }

    /// Whether a part of the document corresponds to one contiguous part of the enclosing text.
    fn is_one_stretch(&self, span: Span) -> bool {
        self.document.pieces.is_of_one_whole(span)
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
        for (name, variable) in self.document.surroundings.environment.iter() {
            environment.entry(name.clone()).or_insert_with(|| variable.clone());
        }
        launch.environment_is_open |= self.document.surroundings.is_open;
        launch.image = launch.image.or_else(|| self.document.surroundings.image.clone());
        launch.engine_version = match launch.engine_version {
            Some(version) => Some(Located::new(version.value, self.place(version.span))),
            None => self.document.version.filter(|stated| stated.is_of(launch.engine)).map(|stated| stated.version),
        };
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
