//! Templates, such as Helm's, Jinja's and ERB, which are not valid YAML or shell themselves.

use schemas::text::Source;

/// What opens and closes a statement or a comment of Jinja, which leaves nothing in the output.
const SILENT: [(&str, &str); 2] = [("{%", "%}"), ("{#", "#}")];
/// Words of statements of which only some branches run, or that run more than once.
const BRANCHES: [&str; 5] = ["elif", "else", "for", "macro", "range"];

/// A template with what is between its braces made blank where it is alone in a line or leaves
/// nothing, and a variable elsewhere, each byte in its place; `None` for a text that is not a
/// template, or of which only some branches may run.
pub(super) fn filled(source: &Source) -> Option<Source> {
    let mut filled = String::with_capacity(source.text().len());
    let (mut rest, mut is_template) = (source.text(), false);
    while let Some((at, opening, closing, is_silent)) = next_opening(rest) {
        let (before, after) = rest.split_at(at);
        let (inside, after) = after.get(opening.len()..)?.split_once(closing)?;
        is_template = true;
        let word = inside.trim_start_matches(['-', '+', ' ']).split([' ', '-']).next().unwrap_or_default();
        if BRANCHES.contains(&word) {
            return None;
        }
        filled.push_str(before);
        let is_first = filled.rsplit('\n').next().unwrap_or_default().trim().is_empty();
        let is_last = after.bytes().find(|byte| !b" \t\r".contains(byte)).is_none_or(|byte| byte == b'\n');
        let (first, others) = if is_silent || (is_first && is_last) { (" ", " ") } else { ("$", "_") };
        filled.push_str(first);
        filled.push_str(&others.repeat(inside.len() + opening.len() + closing.len() - 1));
        rest = after;
    }
    filled.push_str(rest);
    is_template.then(|| Source::new(source.name(), filled))
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

/// Whether a text has braces of a template.
pub(super) fn opens(text: &str) -> bool {
    next_opening(text).is_some()
}

/// The place of the next braces, what opens and closes them, and whether they leave nothing.
fn next_opening(text: &str) -> Option<(usize, &'static str, &'static str, bool)> {
    // `${#list[@]}` is a shell's.
    let of_shell = |at: usize| text.get(..at).is_some_and(|before| before.ends_with('$'));
    let place = |opening: &str| text.match_indices(opening).map(|(at, _)| at).find(|at| !of_shell(*at));
    let silent = SILENT.map(|(opening, closing)| (place(opening), opening, closing, true));
    let spoken = [(text.find("{{"), "{{", "}}", false), (text.find("<%"), "<%", "%>", false)];
    let all = silent.into_iter().chain(spoken);
    let found = all.filter_map(|(at, opening, closing, is_silent)| Some((at?, opening, closing, is_silent)));
    found.min_by_key(|(at, ..)| *at)
}
