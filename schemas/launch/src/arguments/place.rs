//! Where flags can be added, and which text a removal deletes.

use schemas::text::{Source, Span};

use super::super::{Argument, Engine, Insertion, Syntax, writing::Writing};

/// The text to delete with an argument: the blanks before it, or its whole lines if an array has
/// nothing else on them.
pub(super) fn removal(source: &Source, argument: Span, syntax: Syntax) -> Span {
    let text = source.text();
    let start_of_line = source.line_start(argument.start);
    let first_on_line = text.get(start_of_line..argument.start).is_some_and(|before| before.trim().is_empty());
    let end_of_line = source.line_end(argument.end);
    let after = text.get(argument.end..end_of_line).unwrap_or_default().trim();
    // An array with a flag per line loses the whole line; elsewhere the blanks before the flag go
    // with it.
    if syntax == Syntax::ShellArray && first_on_line {
        if after.is_empty() || after.starts_with('#') {
            return Span::new(start_of_line, (end_of_line + 1).min(text.len()));
        }
        let blanks = text.get(argument.end..end_of_line).unwrap_or_default();
        return Span::new(argument.start, argument.end + (blanks.len() - blanks.trim_start().len()));
    }
    Span::new(blanks_start(text, argument.start), argument.end)
}

/// Where to insert another flag: after the last one that is written where this launch's flags are.
pub(super) fn insertion(
    source: &Source,
    arguments: &[Argument],
    syntax: Syntax,
    engine: Engine,
    span: Span,
) -> Insertion {
    let text = source.text();
    let inside = |argument: &&Argument| {
        let within = span.start <= argument.span.start && argument.span.end <= span.end;
        // slime's own flags are often in another array than those of the engine.
        within && (engine != Engine::Slime || argument.flag.value.starts_with("--sglang-"))
    };
    let last = arguments.iter().filter(inside).max_by_key(|argument| argument.span.end);
    let Some(last) = last else {
        let inside_array = syntax == Syntax::ShellArray && text.get(..span.end).is_some_and(|text| text.ends_with(')'));
        let at = if inside_array { span.end - 1 } else { span.end };
        let after = if inside_array { " ".into() } else { String::new() };
        return Insertion { at, before: " ".into(), after, writing: Writing::shell(None) };
    };
    let start_of_line = source.line_start(last.span.start);
    let indentation: String = text
        .get(start_of_line..last.span.start)
        .unwrap_or_default()
        .chars()
        .take_while(|c| c.is_whitespace())
        .collect();
    let alone_on_line = start_of_line + indentation.len() == last.span.start && start_of_line > 0;
    let end_of_line = source.line_end(last.span.end);
    let after = text.get(last.span.end..end_of_line).unwrap_or_default().trim();
    if syntax == Syntax::ShellArray && alone_on_line && (after.is_empty() || after.starts_with('#')) {
        let before = format!("\n{indentation}");
        return Insertion { at: end_of_line, before, after: String::new(), writing: Writing::shell(None) };
    }
    let before = text.get(blanks_start(text, last.span.start)..last.span.start).unwrap_or_default();
    let before = if before.is_empty() { " " } else { before };
    Insertion { at: last.span.end, before: before.into(), after: String::new(), writing: Writing::shell(None) }
}

/// The start of the blanks and line continuations that end at `at`.
fn blanks_start(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let mut rest = before.trim_end_matches([' ', '\t', '\r', '\n']);
    // A backslash counts as blank only if it continues a line.
    while let Some(shorter) = rest.strip_suffix('\\')
        && before.get(rest.len()..).is_some_and(|tail| tail.starts_with('\n') || tail.starts_with("\r\n"))
    {
        rest = shorter.trim_end_matches([' ', '\t', '\r', '\n']);
    }
    rest.len()
}
