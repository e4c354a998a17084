//! Recipes of images: what `ENTRYPOINT` and `CMD` start.

use std::sync::Arc;

use schemas::{
    finding::Finding,
    text::{Located, Source, Span, is_variable_name},
};

use super::{
    Value,
    compose::Composed,
    context::TextContext,
    document::{Document, ReadDocument, Surroundings},
    evidence::{StatedVersion, version_in_image, version_in_requirement},
    images::{engine_of_image, is_published},
    kind::TextKind,
    programs::{self, ProgramRole},
    quoting::is_plain,
    script_words::{kept, script_place},
};

/// Most variables of one image.
const MOST_VARIABLES: usize = 128;

/// What the last stage of a recipe says so far.
#[derive(Default)]
struct BuildStage {
    engine: Option<super::Engine>,
    version: Option<StatedVersion>,
    surroundings: Surroundings,
    entrypoint: Option<Instructed>,
    command: Option<Instructed>,
    /// Whether either is a list, which is not edited because its words are quoted JSON.
    is_list: bool,
}

/// The value of `ENTRYPOINT` or `CMD`.
enum Instructed {
    /// The words of a list, each with its place.
    Words(Vec<(String, Span)>),
    /// What a shell reads.
    Shell(Composed),
}

/// What a container of the image runs.
struct BuildCommand {
    composed: Composed,
    /// Whether a shell reads it.
    is_of_shell: bool,
    /// A flag that the shell keeps.
    finding: Option<Finding>,
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
    let Some(BuildCommand { composed: command, is_of_shell, finding }) = stage.whole_command() else {
        return ReadDocument { documents: scripts, ..ReadDocument::default() };
    };
    let command = if is_of_shell { stage.with_variables(command) } else { command };
    // The image's own entry point is the engine where nothing but flags is given.
    let engine = stage.engine.filter(|_| command.text.starts_with("--"));
    let document = Document {
        engine,
        surroundings: stage.surroundings,
        version: stage.version,
        is_composed: stage.is_list,
        findings: finding.into_iter().collect(),
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
                self.entrypoint = Some(instructed(source, place));
                // An entry point replaces the command that an earlier stage or line has set.
                self.command = None;
                self.is_list = rest.trim_start().starts_with('[');
            }
            "CMD" => {
                self.command = Some(instructed(source, place));
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
            let span = match text.match_indices(value).collect::<Vec<_>>()[..] {
                [(at, _)] if !value.is_empty() => Span::new(place.start + at, place.start + at + value.len()),
                _ => place,
            };
            let value = if value.contains('$') { Value::Unknown(value.into()) } else { Value::Known(value.into()) };
            environment.insert(name.to_owned(), Located::new(value, span));
        }
    }

    /// What the entry point and its arguments start; `None` if there is neither.
    fn whole_command(&self) -> Option<BuildCommand> {
        let (entrypoint, command) = (self.entrypoint.as_ref(), self.command.as_ref());
        let words = match (entrypoint, command) {
            // A shell of its own runs it, which gets no arguments.
            (Some(Instructed::Shell(composed)), _) | (None, Some(Instructed::Shell(composed))) => {
                return Some(BuildCommand { composed: composed.clone(), is_of_shell: true, finding: None });
            }
            (Some(Instructed::Words(words)), Some(Instructed::Shell(command))) => {
                let mut composed = Composed::default();
                words.iter().for_each(|(word, span)| composed.word(word, *span));
                composed.space();
                composed.append(command);
                return Some(BuildCommand { composed, is_of_shell: false, finding: None });
            }
            (Some(Instructed::Words(words)), Some(Instructed::Words(others))) => [&words[..], others].concat(),
            (Some(Instructed::Words(words)), None) | (None, Some(Instructed::Words(words))) => words.clone(),
            (None, None) => return None,
        };
        let mut composed = Composed::default();
        if let Some(at) = script_of_shell(&words) {
            let (script, span) = words.get(at)?;
            composed.copy(script, *span);
            let parameters = words.get(at + 1..)?.iter().map(|(word, span)| (word.as_str(), *span));
            let finding = kept(script, parameters);
            return Some(BuildCommand { composed, is_of_shell: true, finding });
        }
        words.iter().for_each(|(word, span)| composed.word(word, *span));
        (!words.is_empty()).then_some(BuildCommand { composed, is_of_shell: false, finding: None })
    }

    /// A command for a shell after the variables that it uses, which a container may set otherwise.
    fn with_variables(&self, command: Composed) -> Composed {
        let mut composed = Composed::default();
        for (name, value) in self.surroundings.environment.iter() {
            let is_used = [format!("${name}"), format!("${{{name}")].iter().any(|used| command.text.contains(used));
            let Some(text) = value.value.known().filter(|text| is_used && is_variable_name(name) && is_plain(text))
            else {
                continue;
            };
            composed.write(&format!("export {name}=${{{name}:-"));
            composed.put_for(text, value.span);
            composed.write("}\n");
        }
        composed.append(&command);
        composed
    }
}

/// The value of an instruction: words in brackets, or what a shell reads.
fn instructed(source: &Source, place: Span) -> Instructed {
    let text = without_comments(source.slice(place));
    let moved = |(word, span): (String, Span)| (word, Span::new(place.start + span.start, place.start + span.end));
    match words_in_brackets(&text) {
        Some(words) => Instructed::Words(words.into_iter().map(moved).collect()),
        None => {
            let mut composed = Composed::default();
            composed.copy(&text, place);
            Instructed::Shell(composed)
        }
    }
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

/// The place of the script among the words of `["sh", "-c", "…", …]`.
fn script_of_shell(words: &[(String, Span)]) -> Option<usize> {
    let ((shell, _), after) = words.split_first()?;
    let at = script_place(after.iter().map(|(word, _)| Some(word.as_str())))? + 1;
    (programs::has(shell, ProgramRole::Shell) && at < words.len()).then_some(at)
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
