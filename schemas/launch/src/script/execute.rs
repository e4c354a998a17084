//! Commands: which of them may start an engine, with which words, and in which environment.

use std::sync::Arc;

use schemas::text::{Located, Span};

use super::{
    super::{
        command::{ArrayPlace, CommandText, Field, ShellCommand},
        compose::Composed,
        context::TextContext,
        detect,
        document::Surroundings,
        kind::TextKind,
        programs::{self, ProgramRole},
        shell::{Assignment, ShellWord, SimpleCommand},
    },
    Interpreter, MOST_COMMANDS, ShellVariable, Used, anything,
    control_flow::{Elements, ways},
    inside::only_talks,
    read_builtin,
};

/// Maximum number of words of a command without flags that are searched for an engine's program.
const MOST_BEFORE: usize = 64;

/// The value of the variable of a loop over one word.
fn only_value<'c>(command: &'c SimpleCommand<'_>) -> Option<&'c str> {
    let [first, _, is_in, only] = command.words.as_slice() else { return None };
    let is_pattern = |text: &str| text.contains(['*', '?', '[', '{', '~']);
    let is_loop = first.text() == Some("for") && is_in.text() == Some("in");
    only.text().filter(|text| is_loop && !text.is_empty() && !is_pattern(text))
}

impl<'a> Interpreter<'a> {
    pub(super) fn command(&mut self, command: &SimpleCommand<'a>, nesting: usize) {
        let first = command.words.first().and_then(ShellWord::text);
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
        if first == Some("unset") {
            self.unset(command);
            return;
        }
        let assigned = match first {
            Some("for" | "select") => command.words.get(1..2).unwrap_or_default(),
            Some("read") => read_builtin::operands(command.words.get(1..).unwrap_or_default()).0,
            _ => &[],
        };
        for name in assigned.iter().filter_map(ShellWord::name) {
            self.order += 1;
            if let Some(value) = self.given.and_then(|given| given.fixed.get(name.as_ref())) {
                self.scalars.insert(name, self.given_scalar(value));
                continue;
            }
            let value = only_value(command)
                .map_or_else(|| anything(&name), |value| CommandText::Known(value.to_owned().into()));
            let words = Elements::default();
            let scalar = ShellVariable { value, words, literal: None, used: true, order: self.order };
            self.scalars.insert(name, scalar);
        }
        if !assigned.is_empty() {
            return;
        }
        self.note_requirement(command);
        if let Some(program) = self.python_in(command) {
            self.python(program, command);
            return;
        }
        // A command without a flag is not a launch; the texts that it names are inspected
        // separately.
        if self.commands.len() >= MOST_COMMANDS || !(command.words.iter().any(may_hold_flag) || names_program(command))
        {
            return;
        }
        let mut used = Used::default();
        if first == Some("eval") && self.evaluate(command, &mut used) || self.run_remotely(command, &mut used) {
            return;
        }
        let mut words = self.expand_all(&command.words, &mut used);
        if first == Some("eval") {
            words.iter_mut().for_each(leave_quotes_open);
        }
        if !words.iter().any(|word| has_flag(word.value.written())) && !names_program(command) {
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
            let mut line = ShellCommand {
                is_untaken: self.is_untaken(&way.on),
                words: way.words,
                perhaps: way.perhaps,
                branches: way.branches,
                arrays: arrays.clone(),
                ..ShellCommand::default()
            };
            if let Some(detected) = detect::detect(&line, None) {
                let before = line.words.get(..detected.first_argument).unwrap_or_default();
                let mut surroundings = self.surroundings(&command.assignments);
                surroundings.add(before);
                surroundings.image = detect::image_of(before);
                line.version = self.version_among(before);
                line.surroundings = surroundings;
            } else if !std::mem::replace(&mut looked_inside, true) {
                let from = self.commands.len();
                self.look_inside(command, nesting);
                self.run_in_image(from, &line.words);
            }
            self.commands.push(line);
        }
    }

    /// Notes of the lines from an index on that a command runs them in an image:
    /// `docker run IMAGE bash -c "…"`.
    fn run_in_image(&mut self, from: usize, outer: &[Field<'a>]) {
        let Some(image) = detect::image_of(outer) else { return };
        let version = self.version_among(outer);
        let own = detect::image_with_own_entry_point(outer).map(|(image, first)| (image.to_owned(), first.clone()));
        let options = outer.iter().take_while(|word| word.value.known() != Some(image.as_str()));
        let options: Vec<Field<'a>> = options.cloned().collect();
        let is_runtime =
            |word: &Field<'_>| word.value.known().is_some_and(|text| programs::has(text, ProgramRole::Runtime));
        let inside = outer.iter().map(|word| word.span).reduce(Span::join).filter(|_| options.iter().any(is_runtime));
        let mut container = self.surroundings(&[]);
        container.add(&options);
        for line in self.commands.iter_mut().skip(from).filter(|line| line.surroundings.image.is_none()) {
            if let Some(inside) = inside {
                line.surroundings.enter(&container, inside);
            }
            line.surroundings.image = Some(image.clone());
            line.version = line.version.or(version);
            line.passed_to.clone_from(&own);
        }
    }

    /// `eval "$COMMAND"` parses its words again as a command. False if they are unknown.
    fn evaluate(&mut self, command: &SimpleCommand<'a>, used: &mut Used<'a>) -> bool {
        let mut text = Composed::default();
        for word in command.words.iter().skip(1) {
            let split = self.split_value(word.span, used);
            if split.is_open {
                return false;
            }
            text.space();
            text.append(&split.literal);
        }
        let surroundings = self.surroundings(&command.assignments);
        self.run_later(text, surroundings, used)
    }

    /// Keeps a text to parse as a separate command. False if it starts no engine.
    pub(super) fn run_later(&mut self, text: Composed, surroundings: Surroundings, used: &Used<'a>) -> bool {
        if !detect::names_engine(&text.text) || self.documents.len() >= MOST_COMMANDS {
            return false;
        }
        self.mark(used);
        let mut document = text.into_document(TextKind::Script, TextContext::default());
        (document.surroundings, document.version) = (surroundings, self.version_among(&[]));
        self.documents.push(document);
        true
    }

    /// The exported variables and the assignments before a command.
    pub(super) fn surroundings(&self, own: &[Assignment<'a>]) -> Surroundings {
        let mut environment = Arc::clone(&self.exported);
        for assignment in own {
            let value = self.text(&assignment.value.parts, assignment.value.span, &mut Used::default());
            let value = Located::new(value.to_value(), assignment.value.span);
            Arc::make_mut(&mut environment).insert(assignment.name.to_owned(), value);
        }
        Surroundings { environment, is_open: false, image: None }
    }
}

/// How `eval` interprets quotes in a word is unknown here.
fn leave_quotes_open(word: &mut Field<'_>) {
    if let Some(text) = word.value.known().filter(|text| text.contains(['\'', '"', '\\'])) {
        word.value = CommandText::Unknown(text.to_owned().into());
    }
}

/// Whether a command's own words start an engine, with flags or without.
fn names_program(command: &SimpleCommand<'_>) -> bool {
    let texts: Vec<&str> = command.words.iter().take(MOST_BEFORE).map(|word| word.text().unwrap_or_default()).collect();
    detect::starts_engine(&texts)
}

/// Whether a word may contain a flag once it is expanded.
fn may_hold_flag(word: &ShellWord<'_>) -> bool {
    word.text().is_none_or(has_flag)
}

/// Whether a word contains a flag, by itself or in a quoted command, or a Hydra override that
/// becomes one. vLLM's short flag for speculation counts on its own.
fn has_flag(text: &str) -> bool {
    text.contains("_kwargs.")
        || text.contains(".mtp.")
        || text.as_bytes().windows(2).any(|pair| pair == b"--")
        || text.strip_prefix("-sc").is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '=']))
}
