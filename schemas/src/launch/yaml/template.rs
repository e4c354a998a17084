//! Templates of YAML, such as Helm's, which are not valid YAML themselves.

use crate::text::Source;

/// A template with what is between its braces made blank where it stands alone in a line, and a variable elsewhere, each
/// byte in its place; `None` for a text that is not a template, or of which only some branches may run.
pub(super) fn filled(source: &Source) -> Option<Source> {
    let text = source.text();
    let mut filled = String::with_capacity(text.len());
    let (mut rest, mut is_template) = (text, false);
    // Whether there is nothing in the line so far.
    let mut is_blank = true;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after.split_once("}}")?;
        is_template = true;
        let word = inside.trim_start_matches(['-', ' ']).split([' ', '-']).next().unwrap_or_default();
        if matches!(word, "else" | "range") {
            return None;
        }
        is_blank = match before.rsplit_once('\n') {
            Some((_, line)) => line.trim().is_empty(),
            None => is_blank && before.trim().is_empty(),
        };
        let alone = is_blank && after.bytes().find(|byte| !b" \t\r".contains(byte)).is_none_or(|byte| byte == b'\n');
        filled.push_str(before);
        let (first, others) = if alone { (" ", " ") } else { ("$", "_") };
        filled.push_str(first);
        filled.push_str(&others.repeat(inside.len() + 3));
        is_blank = false;
        rest = after;
    }
    filled.push_str(rest);
    is_template.then(|| Source::new(source.name(), filled))
}
