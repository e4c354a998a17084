//! Splits text into words.

use std::borrow::Cow;

use schemas::text::Span;

use super::{
    Operator, ShellWord, Trouble, WordPart, WordParts,
    balance::Opener,
    lexer::{ShellReader, name_length},
    printed::printed,
};

/// Maximum depth to which `${A:-${B:-…}}` is followed.
const DEPTH: usize = 4;

/// Maximum length of the text between a template's braces, in bytes.
const LONGEST_HOLE: usize = 120;

impl<'a> ShellReader<'a> {
    /// A word up to a blank or an operator; inside an array only `)` is an operator.
    pub(super) fn word(&mut self, in_array: bool) -> Option<ShellWord<'a>> {
        let start = self.at;
        let mut parts = WordReading::default();
        let mut end;
        loop {
            self.run(&mut parts, |byte| is_special(byte, in_array));
            end = self.at;
            while self.seam() {}
            if self.at > end && self.peek(0).is_some_and(|byte| !is_special(byte, in_array)) {
                continue;
            }
            match self.peek(0) {
                Some(b'\\') => {
                    if let Some(width) = self.continuation() {
                        self.at += width;
                        continue;
                    }
                    self.at += 1;
                    if self.peek(0).is_none() {
                        parts.push_str("\\");
                    }
                    self.character(&mut parts);
                }
                Some(b'\'') => self.single_quoted(&mut parts),
                Some(b'"') => self.double_quoted(&mut parts),
                Some(b'$') => self.dollar(&mut parts, false, 0),
                Some(b'`') => self.backquoted(&mut parts),
                Some(b'{') => match self.hole_of_template() {
                    Some(width) => {
                        parts.push(WordPart::Opaque);
                        self.at += width;
                    }
                    None => self.character(&mut parts),
                },
                _ => break,
            }
        }
        (end > start).then(|| ShellWord { parts: parts.finish(), span: Span::new(start, end) })
    }

    /// The width of a template expression: `{{ .Values.port }}`.
    fn hole_of_template(&self) -> Option<usize> {
        let inside = self.rest().strip_prefix(b"{{")?;
        let is_inner = |byte: &&u8| byte.is_ascii() && !matches!(byte, b'{' | b'}' | b'\n');
        let length = inside.iter().take(LONGEST_HOLE).take_while(is_inner).count();
        let begins = inside.iter().find(|byte| !matches!(byte, b'-' | b' '));
        let is_value = begins.is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'.' | b'$'));
        let is_closed = inside.get(length..).is_some_and(|rest| rest.starts_with(b"}}"));
        (is_value && is_closed).then_some(length + 4)
    }

    /// Takes plain text up to a byte that `means` something.
    fn run(&mut self, parts: &mut WordReading<'a>, means: impl Fn(u8) -> bool) {
        self.run_until(self.text.len(), parts, means);
    }

    fn run_until(&mut self, end: usize, parts: &mut WordReading<'a>, means: impl Fn(u8) -> bool) {
        let rest = self.bytes().get(self.at..end).unwrap_or_default();
        let length = rest.iter().position(|byte| means(*byte)).unwrap_or(rest.len());
        parts.push_str(self.slice(self.at, self.at + length));
        self.at += length;
    }

    /// Takes one whole character as text.
    fn character(&mut self, parts: &mut WordReading<'a>) {
        let character = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        // Off a character boundary one byte is skipped, which guarantees progress on any input.
        let width = character.map_or(usize::from(self.at < self.text.len()), char::len_utf8);
        parts.push_str(self.slice(self.at, self.at + width));
        self.at += width;
    }

    fn unclosed(&mut self, width: usize, parts: &mut WordReading<'a>) {
        self.trouble(Trouble::Unclosed(Span::new(self.at, self.at + width)));
        parts.push_str(self.slice(self.at, self.at + width));
        self.at += width;
    }

    fn single_quoted(&mut self, parts: &mut WordReading<'a>) {
        match self.hopeless.end_of_single(self.bytes(), self.at + 1) {
            Some(end) => {
                parts.quoted = true;
                self.at += 1;
                // The double quotes around the whole command belong to a shell that has already
                // expanded it.
                while self.seams.is_some_and(|seams| seams.outer == b'"') && self.at < end {
                    self.run_until(end, parts, |byte| matches!(byte, b'$' | b'\\'));
                    match self.bytes().get(self.at).filter(|_| self.at < end) {
                        Some(b'$') => self.dollar(parts, true, 0),
                        Some(_) => {
                            let next = self.bytes().get(self.at + 1).filter(|_| self.at + 1 < end);
                            self.at += usize::from(matches!(next, Some(b'"' | b'\\' | b'$' | b'`')));
                            self.character(parts);
                        }
                        None => {}
                    }
                }
                if self.at < end {
                    parts.push_str(self.slice(self.at, end));
                }
                self.at = self.at.max(end + 1);
            }
            None => self.unclosed(1, parts),
        }
    }

    fn double_quoted(&mut self, parts: &mut WordReading<'a>) {
        let Some(end) = self.hopeless.end_of(Opener::Double, self.bytes(), self.at + 1) else {
            self.unclosed(1, parts);
            return;
        };
        self.at += 1;
        parts.quoted = true;
        self.quoted_until(end - 1, parts, 0);
        self.at = end;
    }

    /// Text in which only `\`, `$` and backquotes are special.
    fn quoted_until(&mut self, end: usize, parts: &mut WordReading<'a>, depth: usize) {
        while self.at < end {
            match self.peek(0) {
                Some(b'\\') => {
                    let next = self.peek(1);
                    match next {
                        Some(b'\n') => self.at += 2,
                        Some(b'$' | b'`' | b'"' | b'\\') => {
                            self.at += 1;
                            self.character(parts);
                        }
                        _ => self.character(parts),
                    }
                }
                Some(b'$') => self.dollar(parts, true, depth),
                Some(b'`') => self.backquoted(parts),
                Some(_) => self.run_until(end, parts, |byte| matches!(byte, b'\\' | b'$' | b'`')),
                None => return,
            }
        }
    }

    fn backquoted(&mut self, parts: &mut WordReading<'a>) {
        match self.hopeless.end_of(Opener::Backquote, self.bytes(), self.at + 1) {
            Some(end) => {
                let command = self.slice(self.at + 1, end - 1);
                let part = sequence(command);
                parts.push(part);
                self.at = end;
            }
            None => self.unclosed(1, parts),
        }
    }

    fn dollar(&mut self, parts: &mut WordReading<'a>, quoted: bool, depth: usize) {
        match self.peek(1) {
            Some(b'(') => match self.hopeless.end_of(Opener::Parenthesis, self.bytes(), self.at + 2) {
                Some(end) => {
                    let inside = self.slice(self.at + 2, end - 1);
                    let arithmetic = inside.strip_prefix('(').and_then(|inside| inside.strip_suffix(')'));
                    parts.push(match arithmetic {
                        Some(inside) => WordPart::Arithmetic(inside),
                        None => printed(inside, self.at + 2, quoted).unwrap_or_else(|| sequence(inside)),
                    });
                    self.at = end;
                }
                None => self.unclosed(2, parts),
            },
            Some(b'{') => match self.hopeless.end_of(Opener::Brace, self.bytes(), self.at + 2) {
                Some(end) => {
                    let part = self.parameter(self.at + 2, end - 1, quoted, depth);
                    parts.push(part);
                    self.at = end;
                }
                None => self.unclosed(2, parts),
            },
            Some(b'\'') if !quoted => {
                self.at += 1;
                self.single_quoted(parts);
            }
            Some(b'"') if !quoted => {
                self.at += 1;
                self.double_quoted(parts);
            }
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                let length = name_length(self.bytes().get(self.at + 1..).unwrap_or_default());
                let name = self.slice(self.at + 1, self.at + 1 + length);
                parts.push(WordPart::Variable { name, operator: Operator::Value, argument: Vec::new(), quoted });
                self.at += 1 + length;
            }
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-') => {
                parts.push(WordPart::Opaque);
                self.at += 2;
            }
            _ => self.character(parts),
        }
    }

    /// The expansion that starts at the current `$` or backquote; `None` if it is plain text.
    pub(super) fn expansion(&mut self) -> Option<WordPart<'a>> {
        let mut parts = WordReading::default();
        match self.peek(0) {
            Some(b'$') => self.dollar(&mut parts, true, 0),
            _ => self.backquoted(&mut parts),
        }
        match parts.finish() {
            WordParts::One(WordPart::Text(_)) | WordParts::Several(_) => None,
            WordParts::One(part) => Some(part),
        }
    }

    /// The inside of `${…}`.
    fn parameter(&mut self, start: usize, end: usize, quoted: bool, depth: usize) -> WordPart<'a> {
        let inside = self.bytes().get(start..end).unwrap_or_default();
        let positional = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = if positional > 0 { positional } else { name_length(inside) };
        let name = self.slice(start, start + length);
        let tail = self.slice(start + length, end);
        if length == 0 {
            return WordPart::Opaque;
        }
        if matches!(tail, "[@]" | "[*]") {
            return WordPart::Elements(name);
        }
        let (operator, width) = match tail.as_bytes() {
            [] => (Operator::Value, 0),
            [b':', b'-' | b'=', ..] => (Operator::Default, 2),
            [b'-' | b'=', ..] => (Operator::Default, 1),
            [b':', b'+', ..] => (Operator::Alternative, 2),
            [b'+', ..] => (Operator::Alternative, 1),
            // `${X:?message}` is X whenever the script continues.
            [b':', b'?', ..] | [b'?', ..] => {
                return WordPart::Variable { name, operator: Operator::Value, argument: Vec::new(), quoted };
            }
            _ => return WordPart::Opaque,
        };
        if depth >= DEPTH {
            return WordPart::Opaque;
        }
        let argument = self.argument(start + length + width, end, depth + 1);
        WordPart::Variable { name, operator, argument, quoted }
    }

    /// The argument of `${X:-…}`: quotes are resolved, the rest is as in double quotes.
    fn argument(&mut self, start: usize, end: usize, depth: usize) -> Vec<WordPart<'a>> {
        let outside = self.at;
        self.at = start;
        let mut parts = WordReading::default();
        while self.at < end {
            match self.peek(0) {
                Some(b'"') => self.at += 1,
                Some(b'\'') => {
                    let rest = self.bytes().get(self.at + 1..end).unwrap_or_default();
                    match rest.iter().position(|byte| *byte == b'\'') {
                        Some(length) => {
                            parts.push_str(self.slice(self.at + 1, self.at + 1 + length));
                            self.at += length + 2;
                        }
                        None => self.character(&mut parts),
                    }
                }
                _ => {
                    let rest = self.bytes().get(self.at..end).unwrap_or_default();
                    let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\'')).unwrap_or(rest.len());
                    // A substitution may itself contain quotes and end after the first of them.
                    self.quoted_until(self.at + plain, &mut parts, depth);
                }
            }
        }
        self.at = outside;
        match parts.finish() {
            WordParts::One(part) => vec![part],
            WordParts::Several(parts) => parts,
        }
    }
}

/// Whether a byte ends a word or means something in it.
fn is_special(byte: u8, in_array: bool) -> bool {
    match byte {
        b' ' | b'\t' | b'\r' | b'\n' | 0x0B | 0x0C | b')' | b'\\' | b'\'' | b'"' | b'$' | b'`' => true,
        b'{' => true,
        b';' | b'&' | b'|' | b'<' | b'>' | b'(' => !in_array,
        _ => false,
    }
}

/// The parts of a word while it is read.
#[derive(Default)]
struct WordReading<'a> {
    parts: Vec<WordPart<'a>>,
    text: Cow<'a, str>,
    /// Whether there was a quote, which makes even an empty text a word.
    quoted: bool,
}

impl<'a> WordReading<'a> {
    fn push(&mut self, part: WordPart<'a>) {
        if !self.text.is_empty() {
            self.parts.push(WordPart::Text(std::mem::take(&mut self.text)));
        }
        self.parts.push(part);
    }

    fn push_str(&mut self, text: &'a str) {
        self.text += text;
    }

    fn finish(mut self) -> WordParts<'a> {
        if !self.text.is_empty() || (self.quoted && self.parts.is_empty()) {
            let text = WordPart::Text(self.text);
            if self.parts.is_empty() {
                return WordParts::One(text);
            }
            self.parts.push(text);
        }
        match self.parts.pop() {
            Some(part) if self.parts.is_empty() => WordParts::One(part),
            last => {
                self.parts.extend(last);
                WordParts::Several(self.parts)
            }
        }
    }
}

/// `seq LAST`, `seq FIRST LAST` or `seq FIRST STEP LAST` with constant bounds; anything else is
/// opaque.
fn sequence(command: &str) -> WordPart<'static> {
    let mut words = command.split_ascii_whitespace();
    if words.next() != Some("seq") {
        return WordPart::Opaque;
    }
    let mut numbers = Vec::new();
    for word in words.take(4) {
        match word.parse::<i64>() {
            Ok(number) => numbers.push(number),
            Err(_) => return WordPart::Opaque,
        }
    }
    match *numbers.as_slice() {
        [last] => WordPart::Sequence { first: 1, step: 1, last },
        [first, last] => WordPart::Sequence { first, step: 1, last },
        [first, step, last] if step != 0 => WordPart::Sequence { first, step, last },
        _ => WordPart::Opaque,
    }
}
