//! The statements of a template: where each is, and what it does to the text around it.

use schemas::text::Span;

/// What opens and closes an expression or a statement, and whether braces of the kind leave nothing
/// in the output.
const BRACES: [(&str, &str, bool); 4] =
    [("{%", "%}", true), ("{#", "#}", true), ("{{", "}}", false), ("<%", "%>", false)];

/// Words that open a block, in any of the languages. Words of loops and macros are among them: a
/// body is read once.
const OPENING: [&str; 13] =
    ["block", "call", "define", "each", "filter", "for", "if", "macro", "range", "raw", "unless", "verbatim", "with"];
/// Words between the branches of a block.
const BETWEEN: [&str; 3] = ["elif", "else", "elsif"];

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEffect {
    /// Opens a block whose text may or may not be in the output.
    Opens,
    /// Ends one branch of a block and begins the next.
    Divides,
    Closes,
    /// Leaves nothing: an assignment, a comment.
    Silent,
    /// Leaves what is not known.
    Output,
}

/// A statement, braces included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateStatement {
    pub span: Span,
    pub effect: BlockEffect,
    /// Whether it takes the blanks around it away.
    pub trims: bool,
}

/// The statements of a text, in order.
pub fn statements(text: &str) -> Vec<TemplateStatement> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(statement) = next(text, at) {
        at = statement.span.end;
        found.push(statement);
    }
    found
}

/// The first statement at or after an offset.
fn next(text: &str, from: usize) -> Option<TemplateStatement> {
    let rest = text.get(from..)?;
    // `${#list[@]}` is a shell's, `${{ … }}` a workflow's.
    let of_shell = |at: usize| rest.get(..at).is_some_and(|before| before.ends_with('$'));
    let place = |opening: &str| rest.match_indices(opening).map(|(at, _)| at).find(|at| !of_shell(*at));
    let openings = BRACES.into_iter().filter_map(|braces| Some((place(braces.0)?, braces)));
    let (at, (opening, closing, is_silent)) = openings.min_by_key(|(at, _)| *at)?;
    let start = at + opening.len();
    let length = rest.get(start..)?.find(closing)?;
    let inside = rest.get(start..start + length)?;
    let span = Span::new(from + at, from + start + length + closing.len());
    let trims = inside.starts_with('-') || inside.ends_with('-') || is_silent;
    let effect = if opening == "{#" { BlockEffect::Silent } else { effect(inside, is_silent) };
    Some(TemplateStatement { span, effect, trims })
}

fn effect(inside: &str, is_silent: bool) -> BlockEffect {
    let inside = inside.trim_start_matches(['-', '+', '~']).trim_start();
    let (is_closing, inside) = match inside.strip_prefix('/') {
        Some(comment) if comment.starts_with('*') => return BlockEffect::Silent,
        Some(rest) => (true, rest),
        None => (false, inside.strip_prefix('#').unwrap_or(inside)),
    };
    let word = inside.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().unwrap_or_default();
    let is_assignment = || inside.starts_with('$') && inside.split_whitespace().nth(1).is_some_and(is_assigning);
    // A variable may have the name of a statement.
    let is_alone = !is_silent && inside.trim_end_matches(['-', ' ']).len() == word.len();
    match word {
        _ if is_closing || word == "end" || (is_silent && word.starts_with("end")) => BlockEffect::Closes,
        _ if is_alone && OPENING.contains(&word) => BlockEffect::Output,
        // The condition of an expression in a justfile has its branches in braces.
        _ if OPENING.contains(&word) && !inside.contains('{') => BlockEffect::Opens,
        _ if BETWEEN.contains(&word) => BlockEffect::Divides,
        "set" if is_silent && !inside.contains('=') => BlockEffect::Opens,
        _ if is_silent || is_assignment() => BlockEffect::Silent,
        _ => BlockEffect::Output,
    }
}

fn is_assigning(word: &str) -> bool {
    matches!(word, ":=" | "=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_the_effect_of_their_first_word() {
        for (text, effect) in [
            ("{{- if .Values.x }}", BlockEffect::Opens),
            ("{{range $i := .Values.x}}", BlockEffect::Opens),
            ("{{#if x}}", BlockEffect::Opens),
            ("{% if x %}", BlockEffect::Opens),
            ("{% set x %}", BlockEffect::Opens),
            ("{{ else if .x }}", BlockEffect::Divides),
            ("{%- elif x -%}", BlockEffect::Divides),
            ("{{- end }}", BlockEffect::Closes),
            ("{{/if}}", BlockEffect::Closes),
            ("{% endfor %}", BlockEffect::Closes),
            ("{% set x = 1 %}", BlockEffect::Silent),
            ("{{- $x := .Values.x }}", BlockEffect::Silent),
            ("{{/* x */}}", BlockEffect::Silent),
            ("{# x #}", BlockEffect::Silent),
            ("{{ .Values.x }}", BlockEffect::Output),
            ("{{ x }}", BlockEffect::Output),
            ("{{ endpoint }}", BlockEffect::Output),
            ("{{ filter }}", BlockEffect::Output),
            ("{% raw %}", BlockEffect::Opens),
            ("{{ if os() == \"a\" { \"b\" } else { \"c\" } }}", BlockEffect::Output),
            ("<%= x %>", BlockEffect::Output),
        ] {
            let found = statements(text);
            assert_eq!(found.iter().map(|one| one.effect).collect::<Vec<_>>(), [effect], "{text}");
        }
        for text in ["${#list[@]} }}", "${{ github.sha }}", "{{ open", "{\"a\": {\"b\": 1}}", ""] {
            assert_eq!(statements(text), [], "{text}");
        }
    }
}
