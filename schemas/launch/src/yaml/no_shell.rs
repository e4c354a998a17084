//! Arguments that are written for a shell where none reads them: lists of Kubernetes and compose,
//! and compose's strings, which are only split at blanks and quotes.

use schemas::{
    finding::{Doubt, Finding},
    text::Span,
};

use crate::problems::NO_SHELL;

/// Reports an item that holds a flag and its value: the engine gets both as one argument. `span` is
/// its place.
pub(super) fn check_item(text: &str, span: Span) -> Option<Finding> {
    let (flag, value) = text.split_once(char::is_whitespace)?;
    let is_flag = flag.strip_prefix("--").is_some_and(|name| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !name.is_empty() && name.bytes().all(is_of_name)
    });
    let value = value.trim();
    if !is_flag || value.is_empty() {
        return None;
    }
    let message =
        format!("`{flag}` and its value are one item, so the engine looks for a flag with a blank in its name");
    let mut found = NO_SHELL.at(span, message, "one argument");
    found.help = Some(format!("write two items, or `{flag}={value}`"));
    Some(found)
}

/// Shell syntax in a string that compose splits into arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShellSyntax {
    /// A `#` at the start of a word: it and what follows are arguments.
    Comment,
    /// A backslash before a blank or a line end, which becomes a part of an argument.
    Backslash,
}

impl ShellSyntax {
    /// A finding about it. Other programs that read such files may split differently.
    pub fn at(self, span: Span) -> Finding {
        let (message, label, help) = match self {
            Self::Comment => (
                "compose knows no comments in a command, so `#` and the words after it are arguments",
                "an argument",
                "move the comment out of the command",
            ),
            Self::Backslash => (
                "compose reads no line continuation in a command, so what the backslash escapes becomes a part of an argument",
                "escapes a blank",
                "remove the backslashes: line ends are blanks",
            ),
        };
        NO_SHELL.at(span, message, label).by_lines().doubt(Doubt::OtherSplitter).help(help)
    }
}

/// The first use of each kind of shell syntax outside quotes, by its place in the string.
pub(super) fn in_line(text: &str) -> Vec<(ShellSyntax, Span)> {
    let mut found: Vec<(ShellSyntax, Span)> = Vec::new();
    let mut note = |syntax: ShellSyntax, at: usize| {
        if found.iter().all(|(own, _)| *own != syntax) {
            found.push((syntax, Span::new(at, at + 1)));
        }
    };
    let (mut quote, mut before) = (None, ' ');
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        let is_escape = letter == '\\' && quote != Some('\'');
        let escaped = if is_escape { letters.next() } else { None };
        match (letter, quote) {
            ('\\', None) if escaped.is_some_and(|(_, next)| next.is_whitespace()) => note(ShellSyntax::Backslash, at),
            ('#', None) if before.is_whitespace() => note(ShellSyntax::Comment, at),
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            _ => {}
        }
        before = letter;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_and_its_value_are_two_items() {
        for text in ["--dtype auto", "--max-model-len  4096", "--model_path {{ .Values.model }}"] {
            assert!(check_item(text, Span::default()).is_some(), "{text}");
        }
        for text in ["--dtype=auto", "--a={\"b\": 1}", "--dtype", "org/m", "-- a", "--flag ", "--a=b c", "vllm serve m"]
        {
            assert!(check_item(text, Span::default()).is_none(), "{text}");
        }
    }

    #[test]
    fn shell_syntax_outside_quotes_is_found() {
        let kinds = |text: &str| in_line(text).into_iter().map(|(kind, span)| (kind, span.start)).collect::<Vec<_>>();
        assert_eq!(kinds("--a 1 # one\n--b 2 # two"), [(ShellSyntax::Comment, 6)]);
        assert_eq!(kinds("--a 1 \\\n--b 2"), [(ShellSyntax::Backslash, 6)]);
        assert_eq!(kinds("--a 1 \\ --b # 2"), [(ShellSyntax::Backslash, 6), (ShellSyntax::Comment, 12)]);
        for text in ["--a 'x # y' \"\\\n# z\"", "--a b#c", "--a \\\"b", "--a '\\'", ""] {
            assert_eq!(kinds(text), [], "{text}");
        }
    }
}
