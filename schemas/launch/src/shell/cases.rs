//! `case`: its patterns are not commands.

use super::{MOST_PATTERNS, ShellBlock, ShellStatement, lexer::ShellReader};

impl ShellReader<'_> {
    /// `case WORD in`, after its first word.
    pub(super) fn case(&mut self) {
        self.open_block(ShellBlock::Case);
        self.skip_blanks();
        let Some(subject) = self.word(false) else { return };
        self.push_statement(ShellStatement::Subject(subject));
        self.skip_lines();
        if self.slice(self.at, self.at + 2) == "in" && self.peek(2).is_none_or(|byte| byte.is_ascii_whitespace()) {
            self.at += 2;
            self.patterns();
        }
    }

    /// The second byte of `;;` or `;&`: the next branch of the innermost `case`.
    pub(super) fn next_case(&mut self) {
        if self.innermost() == Some(ShellBlock::Case) {
            self.at += self.bytes().iter().skip(self.at).take(2).take_while(|byte| matches!(byte, b';' | b'&')).count();
            self.turn_block();
            self.patterns();
        }
    }

    /// The pattern of one branch: words separated by `|`, up to `)`.
    fn patterns(&mut self) {
        self.skip_lines();
        if self.bytes().get(self.at..).is_some_and(|rest| rest.starts_with(b"esac")) {
            return;
        }
        if self.peek(0) == Some(b'(') {
            self.at += 1;
        }
        let mut patterns = Vec::new();
        loop {
            self.skip_blanks();
            patterns.extend(self.word(false).filter(|_| patterns.len() < MOST_PATTERNS));
            self.skip_blanks();
            match self.peek(0) {
                Some(b'|') => self.at += 1,
                Some(b')') => {
                    self.at += 1;
                    break;
                }
                // Not valid for a shell: the following text is read as commands.
                _ => break,
            }
        }
        self.push_statement(ShellStatement::Patterns(patterns));
    }

    /// Skips blanks, line ends and comments.
    fn skip_lines(&mut self) {
        loop {
            self.skip_blanks();
            match self.peek(0) {
                Some(b'\n') => self.at += 1,
                Some(b'#') => self.comment(),
                _ => return,
            }
        }
    }
}
