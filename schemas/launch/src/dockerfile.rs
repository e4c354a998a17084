//! Recipes of images: what `ENTRYPOINT` and `CMD` start.

use std::sync::Arc;

use schemas::text::{Located, Source, Span};

use super::{
    Value,
    compose::Composed,
    context::TextContext,
    document::{Document, ReadDocument, Surroundings},
    evidence::{StatedVersion, version_in_image, version_in_requirement},
    images::{engine_of_image, is_published},
    kind::TextKind,
};

/// Most variables of one image.
const MOST_VARIABLES: usize = 128;

/// What the last stage of a recipe says so far.
#[derive(Default)]
struct BuildStage {
    engine: Option<super::Engine>,
    version: Option<StatedVersion>,
    surroundings: Surroundings,
    entrypoint: Option<Composed>,
    command: Option<Composed>,
    /// Whether either is a list, which is not edited because its words are quoted JSON.
    is_list: bool,
}

/// Finds the command that an image of this recipe runs.
pub(super) fn read(source: &Source, context: &TextContext) -> ReadDocument {
    let mut stage = BuildStage::default();
    let mut scripts = Vec::new();
    for instruction in instructions(source.text()) {
        stage.take(source, instruction.span);
        let copied = instruction.body.filter(|_| is_copy(source.slice(instruction.span)));
        scripts.extend(copied.map(|body| copied_file(source, instruction.span, body, context)));
    }
    let mut command = Composed::default();
    for part in [&stage.entrypoint, &stage.command].into_iter().flatten() {
        command.space();
        command.append(part);
    }
    if command.text.is_empty() {
        return ReadDocument { documents: scripts, ..ReadDocument::default() };
    }
    // The image's own entry point is the engine where nothing but flags is given.
    let engine = stage.engine.filter(|_| command.text.starts_with("--"));
    let document = Document {
        engine,
        surroundings: stage.surroundings,
        version: stage.version,
        is_composed: stage.is_list,
        ..command.into_document(TextKind::Script, context.clone())
    };
    scripts.push(document);
    ReadDocument { documents: scripts, ..ReadDocument::default() }
}

/// An instruction over all of its lines, without the here-document after it.
struct Instruction {
    span: Span,
    /// The lines of its here-document.
    body: Option<Span>,
}

fn instructions(text: &str) -> Vec<Instruction> {
    let mut found: Vec<Instruction> = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    let mut open: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        let end = at + line.trim_end_matches(['\r', '\n']).len();
        let trimmed = line.trim();
        if let Some(delimiter) = open {
            match found.last_mut() {
                Some(last) if trimmed != delimiter => {
                    last.body = Some(Span::new(last.body.map_or(at, |body| body.start), at + line.len()));
                }
                _ => open = None,
            }
            at += line.len();
            continue;
        }
        let is_comment = trimmed.starts_with('#');
        match found.last_mut() {
            Some(last) if goes_on => last.span.end = end,
            _ if trimmed.is_empty() || is_comment => {}
            _ => found.push(Instruction { span: Span::new(at, end), body: None }),
        }
        open = found.last().and_then(|last| delimiter(text.get(last.span.range())?));
        // A comment or an empty line within an instruction does not end it.
        goes_on = trimmed.ends_with('\\') || (goes_on && (is_comment || trimmed.is_empty()));
        at += line.len();
    }
    found
}

/// What ends the here-document of an instruction: `COPY <<EOF /start.sh`.
fn delimiter(instruction: &str) -> Option<&str> {
    let name = instruction.split_whitespace().next()?;
    if !["ADD", "COPY", "RUN"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return None;
    }
    let word = instruction.split_whitespace().find_map(|word| word.strip_prefix("<<"))?;
    let word = word.trim_start_matches('-').trim_matches(['"', '\'']);
    (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).then_some(word)
}

fn is_copy(instruction: &str) -> bool {
    let name = instruction.split_whitespace().next().unwrap_or_default();
    ["ADD", "COPY"].iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// The file that a here-document becomes, by the name after it.
fn copied_file(source: &Source, instruction: Span, body: Span, context: &TextContext) -> Document {
    let name = source.slice(instruction).split_whitespace().next_back().unwrap_or_default();
    let kind = TextKind::from_name(name).unwrap_or(TextKind::Script);
    let mut file = Composed::default();
    file.copy(source.slice(body), body);
    Document { file_name: Some(name.to_owned()), ..file.into_document(kind, context.clone()) }
}

impl BuildStage {
    fn take(&mut self, source: &Source, span: Span) {
        let text = source.slice(span);
        let start = span.start + (text.len() - text.trim_start().len());
        let text = text.trim();
        let Some((name, rest)) = text.split_once(char::is_whitespace) else { return };
        let rest_start = start + (text.len() - rest.trim_start().len());
        let place = Span::new(rest_start, start + text.len());
        match name.to_ascii_uppercase().as_str() {
            "FROM" => {
                let image = rest.split_whitespace().find(|word| !word.starts_with("--")).unwrap_or_default();
                *self =
                    Self { engine: engine_of_image(image), version: version_in_image(image, place), ..Self::default() };
                // What else is installed on a published image, the other instructions say.
                let is_own = engine_of_image(image).is_some() && !image.contains('$') && !is_published(image);
                self.surroundings.image = is_own.then(|| image.to_owned());
            }
            "ENV" => self.variables(rest.trim(), place),
            "RUN" => {
                // The last installation wins, as in the image.
                let pinned = rest
                    .split_whitespace()
                    .find_map(|word| version_in_requirement(word.trim_matches(['"', '\'']), place));
                self.version = pinned.or(self.version);
            }
            "ENTRYPOINT" => {
                self.entrypoint = Some(command(source, place));
                // An entry point replaces the command that an earlier stage or line has set.
                self.command = None;
                self.is_list = rest.trim_start().starts_with('[');
            }
            "CMD" => {
                self.command = Some(command(source, place));
                self.is_list |= rest.trim_start().starts_with('[');
            }
            _ => {}
        }
    }

    /// `ENV A=b C="d"`, or `ENV A b`.
    fn variables(&mut self, text: &str, place: Span) {
        let environment = Arc::make_mut(&mut self.surroundings.environment);
        let pairs: Vec<(&str, &str)> = match text.split_once([' ', '=']) {
            Some((name, value)) if !text.get(name.len()..).is_some_and(|rest| rest.starts_with('=')) => {
                vec![(name, value)]
            }
            _ => text.split_whitespace().filter_map(|word| word.split_once('=')).collect(),
        };
        for (name, value) in pairs.into_iter().take(MOST_VARIABLES.saturating_sub(environment.len())) {
            let value = value.trim_matches(['"', '\'']);
            let value = if value.contains('$') { Value::Unknown(value.into()) } else { Value::Known(value.into()) };
            environment.insert(name.to_owned(), Located::new(value, place));
        }
    }
}

/// A command in brackets, or as a shell reads it.
fn command(source: &Source, place: Span) -> Composed {
    let text = without_comments(source.slice(place));
    let text = text.as_str();
    let mut composed = Composed::default();
    match words_in_brackets(text) {
        Some(words) if is_shell(&words) => {
            if let Some((script, span)) = words.last() {
                composed.copy(script, Span::new(place.start + span.start, place.start + span.end));
            }
        }
        Some(words) => {
            for (word, span) in &words {
                composed.word(word, Span::new(place.start + span.start, place.start + span.end));
            }
        }
        None => composed.copy(text, place),
    }
    composed
}

/// An instruction with blanks in place of its comments and empty lines, which the builder takes
/// out.
fn without_comments(text: &str) -> String {
    let is_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let lines = text.split_inclusive('\n').enumerate();
    lines
        .map(|(number, line)| if number > 0 && is_nothing(line) { " ".repeat(line.len()) } else { line.to_owned() })
        .collect()
}

/// `["sh", "-c", "…"]`.
fn is_shell(words: &[(String, Span)]) -> bool {
    let shell = words.first().is_some_and(|(word, _)| matches!(word.rsplit('/').next(), Some("sh" | "bash")));
    shell && words.len() == 3 && words.get(1).is_some_and(|(word, _)| word.starts_with('-') && word.ends_with('c'))
}

/// The words of a JSON list with their places, quotes not included; nothing where it is none.
fn words_in_brackets(text: &str) -> Option<Vec<(String, Span)>> {
    // A continued line is not part of JSON.
    let joined: String = text.replace("\\\r\n", "  \n").replace("\\\n", " \n");
    let words: Vec<String> = serde_json::from_str(&joined).ok()?;
    let bytes = joined.as_bytes();
    let mut at = 0;
    let mut placed = Vec::with_capacity(words.len());
    for word in words {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'"')? + 1;
        let start = at;
        while *bytes.get(at)? != b'"' {
            at += if *bytes.get(at)? == b'\\' { 2 } else { 1 };
        }
        placed.push((word, Span::new(start, at)));
        at += 1;
    }
    Some(placed)
}
