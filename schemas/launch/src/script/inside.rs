//! Commands inside quoted words: `bash -c "…"`, `ssh host '…'`.

use schemas::text::Span;

use super::{
    super::{
        command::ShellCommand,
        shell::{Operator, ShellReader, ShellWord, SimpleCommand, WordPart},
    },
    Interpreter, Used,
    control_flow::ways,
};
use crate::programs::{self, ProgramRole};

/// Maximum nesting of quoted commands (`ssh host "bash -c '…'"`).
const NESTING: usize = 2;

/// Whether a command runs none of its arguments.
pub fn only_talks(command: &str) -> bool {
    programs::has(command, ProgramRole::Printer) || programs::base(command).starts_with("log")
}

impl<'a> Interpreter<'a> {
    /// Interprets the quoted words of a command.
    pub(super) fn look_inside(&mut self, command: &SimpleCommand<'a>, nesting: usize) {
        if nesting >= NESTING {
            return;
        }
        let runs = command.words.iter().filter_map(ShellWord::text).any(programs::runs_arguments);
        let mut before = None;
        for word in &command.words {
            let option_before = before.replace(word);
            let whole = self.source.slice(word.span);
            // A single option may contain the whole script of a batch job.
            let option = match whole.split_once('=') {
                Some((name, _)) if name == "--wrap" || is_option_of_flags(name) => name.len() + 1,
                _ => 0,
            };
            let span = Span::new(word.span.start + option, word.span.end);
            if self.reads_variable(command, word, runs) {
                continue;
            }
            if option_before.is_some_and(takes_flags) && self.forwards_variable(word) {
                continue;
            }
            let Some(inside) = self.inside(span) else { continue };
            let text = self.source.slice(inside);
            if !names_an_engine(text) && !self.names_an_engine_by_variables(word) {
                continue;
            }
            if text.trim_start().starts_with("--") && (option > 0 || option_before.is_some_and(takes_flags)) {
                let from = self.commands.len();
                self.run(ShellReader::new(self.source.text(), inside), nesting + 1);
                self.commands.iter_mut().skip(from).for_each(|command| command.is_forwarded = true);
                continue;
            }
            if !(runs || begins_as_command(text)) {
                continue;
            }
            let quote = self.source.slice(span).as_bytes().first().copied();
            // Escapes for the enclosing quotes mean something else to the command inside.
            let is_escaped = match quote {
                Some(b'"') => text.contains("\\\""),
                _ => text.contains("'\\''") || text.contains("'\"'\"'"),
            };
            if is_escaped {
                let mut used = Used::default();
                let split = self.split_value(span, &mut used);
                let surroundings = self.surroundings(&command.assignments);
                if !split.is_open && self.run_later(split.literal, surroundings, &used) {
                    continue;
                }
            }
            let reader = ShellReader::new(self.source.text(), inside);
            let was_inside = std::mem::replace(&mut self.is_inside, quote == Some(b'"'));
            self.run(quote.into_iter().fold(reader, ShellReader::in_quotes), nesting + 1);
            self.is_inside = was_inside;
        }
    }

    /// Whether a variable in a word holds flags of an engine.
    fn names_an_engine_by_variables(&self, word: &ShellWord<'a>) -> bool {
        word.parts.as_slice().iter().any(|part| {
            let WordPart::Variable { name, .. } = part else { return false };
            self.scalars.get(*name).is_some_and(|scalar| scalar.words.holds(names_an_engine))
        })
    }

    /// The program that Python runs from a word in quotes that the shell leaves as it is:
    /// `python3 -c '…'`.
    pub(super) fn python_in(&self, command: &SimpleCommand<'a>) -> Option<Span> {
        let mut words = command.words.iter().skip_while(|word| {
            !word.text().map(programs::base).is_some_and(|name| matches!(name, "python" | "python3"))
        });
        let at = words.find(|word| word.text() == Some("-c")).and_then(|_| words.next())?;
        let inside = self.inside(at.span)?;
        let is_single = self.source.slice(at.span).starts_with('\'');
        if !is_single && self.source.slice(inside).contains(['$', '`', '\\']) {
            return None;
        }
        names_an_engine(self.source.slice(inside)).then_some(inside)
    }

    /// Interprets a command that a variable holds: `bash -c "$COMMAND"`.
    fn reads_variable(&mut self, command: &SimpleCommand<'a>, word: &ShellWord<'a>, runs: bool) -> bool {
        let [WordPart::Variable { name, operator: Operator::Value, quoted: true, .. }] = word.parts.as_slice() else {
            return false;
        };
        let Some(literal) = self.scalars.get(*name).and_then(|scalar| scalar.literal.clone()).filter(|_| runs) else {
            return false;
        };
        let used = Used { scalars: vec![name], ..Used::default() };
        let surroundings = self.surroundings(&command.assignments);
        self.run_later(literal, surroundings, &used)
    }

    /// Keeps the flags of a variable that an option passes on: `--framework-args "$FLAGS"`.
    fn forwards_variable(&mut self, word: &ShellWord<'a>) -> bool {
        let [WordPart::Variable { name, operator: Operator::Value | Operator::Default, .. }] = word.parts.as_slice()
        else {
            return false;
        };
        let Some(scalar) = self.scalars.get(*name).filter(|scalar| scalar.words.is_list()) else { return false };
        let (mut words, mut conditional) = (Vec::new(), Vec::new());
        scalar.words.expand(&self.gone, &mut words, &mut conditional);
        self.mark(&Used { scalars: vec![name], ..Used::default() });
        for way in ways(words, &conditional, &self.gone) {
            let is_untaken = self.is_untaken(&way.on);
            self.commands.push(ShellCommand {
                is_untaken,
                words: way.words,
                perhaps: way.perhaps,
                branches: way.branches,
                is_forwarded: true,
                ..ShellCommand::default()
            });
        }
        true
    }

    /// The part between the quotes around a word, if it contains blanks.
    fn inside(&self, span: Span) -> Option<Span> {
        let text = self.source.slice(span);
        let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        let inside = text.get(1..)?.strip_suffix(quote)?;
        inside.contains(char::is_whitespace).then(|| Span::new(span.start + 1, span.end - 1))
    }
}

/// Whether a quoted text could contain the launch of an engine.
fn names_an_engine(text: &str) -> bool {
    ["sglang", "vllm", "spectune", "--speculative"].iter().any(|name| text.contains(name))
}

/// Whether an option takes flags for another program: `--framework-args "--model m"`.
fn takes_flags(option: &ShellWord<'_>) -> bool {
    option.text().is_some_and(is_option_of_flags)
}

fn is_option_of_flags(name: &str) -> bool {
    const ENDINGS: [&str; 7] = ["args", "arguments", "cmd", "flags", "options", "opts", "params"];
    let name = name.replace('_', "-").to_ascii_lowercase();
    name.starts_with("--") && ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether the first word that is not an assignment is a program.
fn begins_as_command(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.find(|word| word.starts_with('-') || !word.contains('=')).unwrap_or_default();
    programs::starts_command(first)
}
