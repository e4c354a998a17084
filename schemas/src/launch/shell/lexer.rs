//! From text to statements.

use super::{
    Array, Assignment, Command, Operator, Part, Statement, Trouble, Word,
    balance::{Hopeless, Opener},
};
use crate::text::Span;

/// How deep `${A:-${B:-…}}` is followed.
const DEPTH: usize = 4;

/// Reads the part `span` of a text.
pub(in crate::launch) fn read(text: &str, span: Span) -> (Vec<Statement>, Vec<Trouble>) {
    let mut lexer = Lexer::new(text, span);
    lexer.script();
    (lexer.statements, lexer.troubles)
}

/// The comments in the part `span` of a text.
pub(in crate::launch) fn comments(text: &str, span: Span) -> Vec<Span> {
    let mut lexer = Lexer::new(text, span);
    lexer.script();
    lexer.comments
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    hopeless: Hopeless,
    statements: Vec<Statement>,
    troubles: Vec<Trouble>,
    comments: Vec<Span>,
    /// The command that is being read.
    command: Command,
    /// For each open block, whether it is a subshell, which alone `)` closes.
    subshells: Vec<bool>,
    /// Delimiters of here-documents that begin on the next line.
    documents: Vec<String>,
    /// Set once a here-document had no end.
    document_hopeless: bool,
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str, span: Span) -> Self {
        let end = span.end.min(text.len());
        Self {
            text,
            bytes: text.as_bytes().get(..end).unwrap_or_default(),
            at: span.start,
            hopeless: Hopeless::default(),
            statements: Vec::new(),
            troubles: Vec::new(),
            comments: Vec::new(),
            command: Command::default(),
            subshells: Vec::new(),
            documents: Vec::new(),
            document_hopeless: false,
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn slice(&self, start: usize, end: usize) -> &str {
        self.text.get(start..end).unwrap_or_default()
    }

    fn script(&mut self) {
        loop {
            self.skip_blanks();
            let Some(byte) = self.peek(0) else { break };
            match byte {
                b'\n' => {
                    self.finish();
                    self.at += 1;
                    self.skip_documents();
                }
                b'#' => self.comment(),
                b'&' if self.peek(1) == Some(b'>') => self.redirection(),
                b';' | b'&' | b'|' => {
                    self.finish();
                    self.at += 1;
                }
                b'(' => self.opening_parenthesis(),
                b')' => {
                    self.finish();
                    self.at += 1;
                    if self.subshells.last() == Some(&true) {
                        self.close_block();
                    }
                }
                b'<' | b'>' => self.redirection(),
                _ => self.item(),
            }
        }
        self.finish();
        while !self.subshells.is_empty() {
            self.close_block();
        }
    }

    fn open_block(&mut self, subshell: bool) {
        self.subshells.push(subshell);
        self.statements.push(Statement::BlockOpens);
    }

    fn close_block(&mut self) {
        if self.subshells.pop().is_some() {
            self.statements.push(Statement::BlockCloses);
        }
    }

    fn opening_parenthesis(&mut self) {
        self.at += 1;
        if self.command.words.len() == 1 && self.peek(0) == Some(b')') {
            // `name()`: the body follows in braces.
            self.command = Command::default();
            self.at += 1;
            return;
        }
        self.finish();
        self.open_block(true);
    }

    /// Ends the command that is being read.
    fn finish(&mut self) {
        let command = std::mem::take(&mut self.command);
        if !command.words.is_empty() || !command.assignments.is_empty() {
            self.statements.push(Statement::Command(command));
        }
    }

    /// Blanks, line ends of other systems and continued lines.
    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\r' | 0x0B | 0x0C => self.at += 1,
                b'\\' => match self.continuation() {
                    Some(width) => self.at += width,
                    None => return,
                },
                _ => return,
            }
        }
    }

    /// The width of a continued line's end at the present place. Blanks after the backslash are a mistake that is read
    /// as what was meant, and told.
    fn continuation(&mut self) -> Option<usize> {
        let blanks = self.rest().iter().skip(1).take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
        if self.peek(1 + blanks) != Some(b'\n') {
            return None;
        }
        if self.rest().iter().skip(1).take(blanks).any(|byte| *byte != b'\r') {
            self.troubles.push(Trouble::BlankAfterBackslash(Span::new(self.at, self.at + 1 + blanks)));
        }
        Some(2 + blanks)
    }

    fn comment(&mut self) {
        let length = self.rest().iter().position(|byte| *byte == b'\n').unwrap_or(self.rest().len());
        let end = self.at + length;
        let carriage_return = length > 0 && self.bytes.get(end - 1) == Some(&b'\r');
        self.comments.push(Span::new(self.at, end - usize::from(carriage_return)));
        self.at = end;
    }

    /// The bodies of the here-documents that the line before announced.
    fn skip_documents(&mut self) {
        for delimiter in std::mem::take(&mut self.documents) {
            if self.document_hopeless {
                return;
            }
            let mut line_start = self.at;
            let end = loop {
                if line_start >= self.bytes.len() {
                    break None;
                }
                let rest = self.bytes.get(line_start..).unwrap_or_default();
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                if self.slice(line_start, line_start + length).trim() == delimiter {
                    break Some((line_start + length + 1).min(self.bytes.len()));
                }
                line_start += length + 1;
            };
            match end {
                Some(end) => self.at = end,
                None => self.document_hopeless = true,
            }
        }
    }

    fn redirection(&mut self) {
        if let Some(width) = self.placeholder() {
            let span = Span::new(self.at, self.at + width);
            self.at += width;
            self.command.words.push(Word { parts: vec![Part::Opaque], span });
            return;
        }
        let document = self.rest().starts_with(b"<<") && !self.rest().starts_with(b"<<<");
        self.at += self.rest().iter().take_while(|byte| matches!(byte, b'<' | b'>' | b'&')).count();
        if document && self.peek(0) == Some(b'-') {
            self.at += 1;
        }
        self.skip_blanks();
        if self.peek(0) == Some(b'(') {
            let end = self.hopeless.end_of(Opener::Parenthesis, self.bytes, self.at + 1);
            self.at = end.unwrap_or(self.at + 1);
            return;
        }
        if let Some(word) = self.word(false)
            && document
            && let Some(delimiter) = word.text().filter(|delimiter| !delimiter.is_empty())
        {
            self.documents.push(delimiter.to_owned());
        }
    }

    /// The width of a `<PLACEHOLDER>` of documentation, which is no redirection.
    fn placeholder(&self) -> Option<usize> {
        let name = self.rest().strip_prefix(b"<")?;
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b'.' | b' ');
        let length = name.iter().take(80).take_while(|byte| inner(byte)).count();
        (length > 0 && name.first() != Some(&b' ') && name.get(length) == Some(&b'>')).then_some(length + 2)
    }

    /// A word, an assignment or an array.
    fn item(&mut self) {
        let start = self.at;
        let declares = self.command.words.first().and_then(Word::text).is_some_and(|first| {
            matches!(first, "export" | "local" | "declare" | "readonly" | "typeset" | "env" | "set")
        });
        if let Some((name, append)) = self.assignment_name() {
            let value_start = start + name.len() + 1 + usize::from(append);
            if self.bytes.get(value_start) == Some(&b'(') {
                self.array(name, append, value_start + 1);
                return;
            }
            if self.command.words.is_empty() || declares {
                self.at = value_start;
                let value = self
                    .word(false)
                    .unwrap_or_else(|| Word { parts: Vec::new(), span: Span::new(value_start, value_start) });
                self.command.assignments.push(Assignment { name, append, value });
                return;
            }
        }
        let Some(word) = self.word(false) else {
            // No byte can stop here but one that opens nothing; skipping it keeps the reader moving.
            self.at += 1;
            return;
        };
        let digits = || self.slice(start, self.at).bytes().all(|byte| byte.is_ascii_digit());
        if matches!(self.peek(0), Some(b'<' | b'>')) && digits() {
            return; // the file descriptor of a redirection
        }
        if self.command.words.is_empty() && self.command.assignments.is_empty() && self.keyword(&word) {
            return;
        }
        self.command.words.push(word);
    }

    /// Handles a reserved word in the place of a command.
    fn keyword(&mut self, word: &Word) -> bool {
        let plain = word.text().filter(|text| text.len() == word.span.end - word.span.start);
        match plain {
            Some("if" | "while" | "until" | "case" | "{" | "function") => self.open_block(false),
            Some("for" | "select") => {
                self.open_block(false);
                return false; // the loop's variable is wanted
            }
            Some("fi" | "done" | "esac" | "}") => self.close_block(),
            Some("else" | "elif") => {
                self.close_block();
                self.open_block(false);
            }
            Some("then" | "do" | "!" | "time" | "in") => {}
            _ => return false,
        }
        true
    }

    /// `NAME=` or `NAME+=` at the present place.
    fn assignment_name(&self) -> Option<(String, bool)> {
        let rest = self.rest();
        let length = name_length(rest);
        let append = rest.get(length) == Some(&b'+') && rest.get(length + 1) == Some(&b'=');
        (length > 0 && (append || rest.get(length) == Some(&b'=')))
            .then(|| (self.slice(self.at, self.at + length).to_owned(), append))
    }

    fn array(&mut self, name: String, append: bool, from: usize) {
        let start = self.at;
        let name_span = Span::new(start, start + name.len());
        self.at = from;
        let mut words = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek(0) {
                Some(b')') => {
                    self.at += 1;
                    break;
                }
                Some(b'\n') => self.at += 1,
                Some(b'#') => self.comment(),
                // Another array inside an array: the first one was never closed.
                Some(_) if !words.is_empty() && self.array_begins() => {
                    self.troubles.push(Trouble::UnclosedArray(name_span));
                    break;
                }
                Some(_) => match self.word(true) {
                    Some(word) => words.push(word),
                    None => self.at += 1,
                },
                None => {
                    self.troubles.push(Trouble::UnclosedArray(name_span));
                    break;
                }
            }
        }
        let span = Span::new(start, self.at);
        self.statements.push(Statement::Array(Array { name, name_span, append, words, span }));
    }

    fn array_begins(&self) -> bool {
        let at_line_start = self.at == 0 || self.bytes.get(self.at - 1) == Some(&b'\n');
        at_line_start
            && self.assignment_name().is_some_and(|(name, append)| {
                self.bytes.get(self.at + name.len() + 1 + usize::from(append)) == Some(&b'(')
            })
    }

    /// A word up to a blank or an operator; inside an array only `)` is an operator.
    fn word(&mut self, in_array: bool) -> Option<Word> {
        let start = self.at;
        let mut parts = Parts::default();
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0B | 0x0C | b')' => break,
                b';' | b'&' | b'|' | b'<' | b'>' | b'(' if !in_array => break,
                b'\\' => {
                    if let Some(width) = self.continuation() {
                        self.at += width;
                        continue;
                    }
                    self.at += 1;
                    if self.peek(0).is_none() {
                        parts.text.push('\\');
                    }
                    self.character(&mut parts);
                }
                b'\'' => self.single_quoted(&mut parts),
                b'"' => self.double_quoted(&mut parts),
                b'$' => self.dollar(&mut parts, false, 0),
                b'`' => self.backquoted(&mut parts),
                _ => self.character(&mut parts),
            }
        }
        let span = Span::new(start, self.at);
        (self.at > start).then(|| Word { parts: parts.finish(), span })
    }

    /// Takes one character, whole, as text.
    fn character(&mut self, parts: &mut Parts) {
        let character = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        match character {
            Some(character) if self.at < self.bytes.len() => {
                parts.text.push(character);
                self.at = (self.at + character.len_utf8()).min(self.bytes.len());
            }
            // Off a character's boundary only where the part to read ends inside of one.
            _ => self.at = (self.at + 1).min(self.bytes.len()),
        }
    }

    fn unclosed(&mut self, width: usize, parts: &mut Parts) {
        self.troubles.push(Trouble::Unclosed(Span::new(self.at, self.at + width)));
        parts.text.push_str(self.text.get(self.at..self.at + width).unwrap_or_default());
        self.at += width;
    }

    fn single_quoted(&mut self, parts: &mut Parts) {
        match self.hopeless.end_of_single(self.bytes, self.at + 1) {
            Some(end) => {
                parts.text.push_str(self.text.get(self.at + 1..end).unwrap_or_default());
                parts.quoted = true;
                self.at = end + 1;
            }
            None => self.unclosed(1, parts),
        }
    }

    fn double_quoted(&mut self, parts: &mut Parts) {
        let Some(end) = self.hopeless.end_of(Opener::Double, self.bytes, self.at + 1) else {
            self.unclosed(1, parts);
            return;
        };
        self.at += 1;
        parts.quoted = true;
        self.quoted_until(end - 1, parts, 0);
        self.at = end;
    }

    /// Text in which only `\`, `$` and backquotes mean anything.
    fn quoted_until(&mut self, end: usize, parts: &mut Parts, depth: usize) {
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
                Some(_) => self.character(parts),
                None => return,
            }
        }
    }

    fn backquoted(&mut self, parts: &mut Parts) {
        match self.hopeless.end_of(Opener::Backquote, self.bytes, self.at + 1) {
            Some(end) => {
                let command = self.slice(self.at + 1, end - 1);
                let part = sequence(command);
                parts.push(part);
                self.at = end;
            }
            None => self.unclosed(1, parts),
        }
    }

    fn dollar(&mut self, parts: &mut Parts, quoted: bool, depth: usize) {
        match self.peek(1) {
            Some(b'(') => match self.hopeless.end_of(Opener::Parenthesis, self.bytes, self.at + 2) {
                Some(end) => {
                    let part = sequence(self.slice(self.at + 2, end - 1));
                    parts.push(part);
                    self.at = end;
                }
                None => self.unclosed(2, parts),
            },
            Some(b'{') => match self.hopeless.end_of(Opener::Brace, self.bytes, self.at + 2) {
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
                let length = name_length(self.bytes.get(self.at + 1..).unwrap_or_default());
                let name = self.slice(self.at + 1, self.at + 1 + length).to_owned();
                parts.push(Part::Variable { name, operator: Operator::Value, argument: Vec::new(), quoted });
                self.at += 1 + length;
            }
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-') => {
                parts.push(Part::Opaque);
                self.at += 2;
            }
            _ => self.character(parts),
        }
    }

    /// The inside of `${…}`.
    fn parameter(&mut self, start: usize, end: usize, quoted: bool, depth: usize) -> Part {
        let inside = self.bytes.get(start..end).unwrap_or_default();
        let positional = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = if positional > 0 { positional } else { name_length(inside) };
        let name = self.slice(start, start + length).to_owned();
        let tail = self.slice(start + length, end);
        if length == 0 {
            return Part::Opaque;
        }
        if matches!(tail, "[@]" | "[*]") {
            return Part::Elements(name);
        }
        let (operator, width) = match tail.as_bytes() {
            [] => (Operator::Value, 0),
            [b':', b'-' | b'=', ..] => (Operator::Default, 2),
            [b'-' | b'=', ..] => (Operator::Default, 1),
            [b':', b'+', ..] => (Operator::Alternative, 2),
            [b'+', ..] => (Operator::Alternative, 1),
            // `${X:?message}` is X wherever the script goes on.
            [b':', b'?', ..] | [b'?', ..] => {
                return Part::Variable { name, operator: Operator::Value, argument: Vec::new(), quoted };
            }
            _ => return Part::Opaque,
        };
        if depth >= DEPTH {
            return Part::Opaque;
        }
        let argument = self.argument(start + length + width, end, depth + 1);
        Part::Variable { name, operator, argument, quoted }
    }

    /// The argument of `${X:-…}`: quotes are resolved, the rest is as in double quotes.
    fn argument(&mut self, start: usize, end: usize, depth: usize) -> Vec<Part> {
        let outside = self.at;
        self.at = start;
        let mut parts = Parts::default();
        while self.at < end {
            match self.peek(0) {
                Some(b'"') => self.at += 1,
                Some(b'\'') => {
                    let rest = self.bytes.get(self.at + 1..end).unwrap_or_default();
                    match rest.iter().position(|byte| *byte == b'\'') {
                        Some(length) => {
                            parts.text.push_str(self.text.get(self.at + 1..self.at + 1 + length).unwrap_or_default());
                            self.at += length + 2;
                        }
                        None => self.character(&mut parts),
                    }
                }
                _ => {
                    let rest = self.bytes.get(self.at..end).unwrap_or_default();
                    let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\'')).unwrap_or(rest.len());
                    // A substitution may itself hold quotes and end past the first of them.
                    self.quoted_until(self.at + plain, &mut parts, depth);
                }
            }
        }
        self.at = outside;
        parts.finish()
    }
}

/// The parts of a word while it is read.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    text: String,
    /// Whether there was a quote, which makes even an empty word a word.
    quoted: bool,
}

impl Parts {
    fn push(&mut self, part: Part) {
        if !self.text.is_empty() {
            self.parts.push(Part::Text(std::mem::take(&mut self.text)));
        }
        self.parts.push(part);
    }

    fn finish(mut self) -> Vec<Part> {
        if !self.text.is_empty() || (self.quoted && self.parts.is_empty()) {
            // Nearly every word is one text: room for more would be most of what a long script takes.
            self.parts.reserve_exact(1);
            self.parts.push(Part::Text(self.text));
        }
        self.parts
    }
}

fn name_length(bytes: &[u8]) -> usize {
    let first = bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    if first { bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count() } else { 0 }
}

/// `seq LAST`, `seq FIRST LAST` or `seq FIRST STEP LAST` with constant bounds; anything else is opaque.
fn sequence(command: &str) -> Part {
    let mut words = command.split_ascii_whitespace();
    if words.next() != Some("seq") {
        return Part::Opaque;
    }
    let mut numbers = Vec::new();
    for word in words.take(4) {
        match word.parse::<i64>() {
            Ok(number) => numbers.push(number),
            Err(_) => return Part::Opaque,
        }
    }
    match *numbers.as_slice() {
        [last] => Part::Sequence { first: 1, step: 1, last },
        [first, last] => Part::Sequence { first, step: 1, last },
        [first, step, last] if step != 0 => Part::Sequence { first, step, last },
        _ => Part::Opaque,
    }
}
