//! `[[ … ]]` and `(( … ))`: the signs in them are not those of commands.

use std::borrow::Cow;

use schemas::text::Span;

use super::{ShellWord, WordPart, WordParts, balance::Opener, lexer::ShellReader};

/// Maximum length of a test, in bytes.
const LONGEST: usize = 2048;

impl ShellReader<'_> {
    /// The rest of `[[ … ]]`, after its first word, as words. Without an end it is read as any
    /// other command.
    pub(super) fn double_brackets(&mut self) {
        let rest = self.rest();
        let closes = |at: &usize| {
            let before = at.checked_sub(1).and_then(|before| rest.get(before));
            before.is_some_and(u8::is_ascii_whitespace)
                && rest
                    .get(at + 2)
                    .is_none_or(|byte| byte.is_ascii_whitespace() || matches!(byte, b';' | b')' | b'&' | b'|'))
        };
        let window = rest.get(..LONGEST).unwrap_or(rest);
        let ends = window.windows(2).enumerate().filter(|(_, pair)| *pair == b"]]").map(|(at, _)| at);
        let Some(end) = ends.into_iter().find(closes).map(|at| self.at + at + 2) else { return };
        while self.at < end {
            self.skip_blanks();
            match self.peek(0) {
                Some(b'\n') => self.at += 1,
                Some(byte @ (b'&' | b'|' | b'<' | b'>' | b'(' | b')' | b';')) => {
                    let is_pair = matches!(byte, b'&' | b'|') && self.peek(1) == Some(byte);
                    self.sign(1 + usize::from(is_pair));
                }
                Some(_) => match self.word(false) {
                    Some(word) => self.push_word(word),
                    None => self.at += 1,
                },
                None => return,
            }
        }
    }

    /// `(( … ))` at the start of a command, as two words: the sign and what is inside. False if it
    /// is none.
    pub(super) fn arithmetic(&mut self) -> bool {
        if !self.begins_command() || self.peek(1) != Some(b'(') {
            return false;
        }
        let start = self.at;
        let Some(end) = self.hopeless.end_of(Opener::Parenthesis, self.bytes(), start + 1) else { return false };
        let inside = Span::new(start + 2, end.saturating_sub(2).max(start + 2));
        if end - start > LONGEST || !self.slice(start, end).ends_with("))") {
            return false;
        }
        self.sign(2);
        self.at = inside.start;
        self.sign(inside.end - inside.start);
        self.at = end;
        true
    }

    /// Takes some bytes as a word of their own.
    fn sign(&mut self, width: usize) {
        let span = Span::new(self.at, self.at + width);
        let text = self.slice(span.start, span.end);
        self.push_word(ShellWord { parts: WordParts::One(WordPart::Text(Cow::Borrowed(text))), span });
        self.at = span.end;
    }
}
