//! Templates, such as Helm's, Jinja's and ERB, which are not valid YAML or shell themselves.

mod branches;
mod choices;
mod parts;
mod statements;

use schemas::text::{Source, Span};

use self::{choices::BranchChoice, statements::BlockEffect};

/// Maximum number of choices of branches of which the launches are read, in addition to the first
/// ones.
const MOST_READ: usize = 8;

/// A template without the statements that decide what exists: each byte has its place.
pub(super) struct RenderedTemplate {
    pub source: Source,
    /// The blocks that may be missing.
    pub blocks: Vec<Span>,
    /// Those of which another branch than the first one is read.
    pub others: Vec<Span>,
    /// Where more may be written than is visible.
    pub unseen: Vec<Span>,
}

/// A template with the first branch of each block, as far as conditions allow it. `None` where
/// there are no blocks. `joins_lines` says whether a line end may become a blank.
pub(super) fn first_branches(source: &Source, joins_lines: bool) -> Option<RenderedTemplate> {
    rendered(source, joins_lines, &BranchChoice::first(source.text()))
}

/// A template with other branches: the second ones, the third ones, and those of one condition at a
/// time. Blocks with the same condition have the same outcome.
pub(super) fn other_branches(source: &Source, joins_lines: bool) -> Vec<RenderedTemplate> {
    let choices = BranchChoice::others(source.text());
    let mut found: Vec<RenderedTemplate> = Vec::new();
    for choice in &choices {
        let other = rendered(source, joins_lines, choice).filter(|one| !one.others.is_empty());
        let is_new = |one: &RenderedTemplate| found.iter().all(|known| known.source.text() != one.source.text());
        let other = other.filter(is_new);
        found.extend(other);
        if found.len() == MOST_READ {
            break;
        }
    }
    found
}

fn rendered(source: &Source, joins_lines: bool, choice: &BranchChoice) -> Option<RenderedTemplate> {
    let branches::Rendered { text, blocks, others, unseen } = branches::rendered(source.text(), joins_lines, choice)?;
    Some(RenderedTemplate { source: Source::new(source.name(), text), blocks, others, unseen })
}

/// A template with a variable in place of each expression, or blanks where one is alone in a line,
/// each byte in its place; `None` for a text that has none, or of which only some branches are
/// rendered.
pub(super) fn filled(source: &Source) -> Option<Source> {
    fill(source, |span| Some(if branches::is_alone(source.text(), span) { (' ', ' ') } else { ('$', '_') }))
}

/// Whether a text has statements or expressions of a template.
pub(super) fn opens(text: &str) -> bool {
    !statements::statements(text).is_empty()
}

/// YAML with a variable in place of each expression that a value or an item begins with: without
/// quotes it would be a mapping.
pub(super) fn values_filled(source: &Source) -> Option<Source> {
    let text = source.text();
    fill(source, |span| {
        let before = text.get(..span.start).unwrap_or_default().rsplit('\n').next().unwrap_or_default();
        begins_value(before).then_some(('$', '_'))
    })
}

/// Replaces expressions by a first letter and further ones, where `letters` gives them.
fn fill(source: &Source, letters: impl Fn(Span) -> Option<(char, char)>) -> Option<Source> {
    let text = source.text();
    let (mut filled, mut at) = (String::with_capacity(text.len()), 0);
    for statement in statements::statements(text) {
        let span = statement.span;
        if statement.effect != BlockEffect::Output {
            return None;
        }
        let Some((first, others)) = letters(span) else { continue };
        filled.push_str(text.get(at..span.start)?);
        filled.push(first);
        filled.extend(std::iter::repeat_n(others, span.end - span.start - 1));
        at = span.end;
    }
    filled.push_str(text.get(at..)?);
    (at > 0).then(|| Source::new(source.name(), filled))
}

/// Whether the next letter of a line of YAML is the first of a value or of an item.
fn begins_value(before: &str) -> bool {
    let is_key = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
    let rest = before.trim_start();
    let item = rest.trim_start_matches("- ").trim_start();
    let is_item = item.len() < rest.len() && item.is_empty();
    is_item || item.trim_end().strip_suffix(':').is_some_and(|key| is_key(key) && item.ends_with(' '))
}

/// A text with blank lines where a placeholder is alone in a line, which something replaces before
/// the text is used: `__MORE__`, `${MORE}`, `@MORE@`, `%MORE%`, `<MORE>`, `@@MORE@@`. `None` where
/// there is none.
pub(super) fn without_placeholder_lines(source: &Source) -> Option<Source> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let is_placeholder = |line: &str| {
        let enclosed = [("__", "__"), ("${", "}"), ("@", "@"), ("%", "%"), ("<", ">"), ("$", "")];
        fn inside<'t>(line: &'t str, (open, close): (&str, &str)) -> Option<&'t str> {
            line.strip_prefix(open)?.strip_suffix(close)
        }
        let named = |line: &str| enclosed.into_iter().filter_map(|signs| inside(line, signs)).any(is_name);
        // Signs may be doubled: `@@MORE@@`, `<<MORE>>`.
        let once_more = |signs| inside(line, signs).filter(|rest| !rest.contains(' '));
        named(line) || enclosed.into_iter().filter_map(once_more).any(named)
    };
    let mut filled = String::with_capacity(source.text().len());
    for line in source.text().split_inclusive('\n') {
        match is_placeholder(line.trim_ascii()) {
            true => filled.extend(line.chars().map(|letter| if letter.is_ascii_whitespace() { letter } else { ' ' })),
            false => filled.push_str(line),
        }
    }
    (filled != source.text()).then(|| Source::new(source.name(), filled))
}
