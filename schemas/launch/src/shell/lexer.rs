//! Splits text into statements.

use std::collections::VecDeque;

use schemas::text::Span;

use super::{
    Array, Assignment, MOST_WORDS, ShellBlock, ShellStatement, ShellWord, SimpleCommand, Trouble, WordPart, WordParts,
    balance::{Hopeless, Opener},
    documents::Announced,
};

/// Maximum length of a placeholder that is assigned, in bytes.
const LONGEST_PLACEHOLDER: usize = 160;

/// Maximum number of reported problems per text.
const MOST_TROUBLES: usize = 1024;

/// The comments in the part `span` of a text.
pub(crate) fn comments(text: &str, span: Span) -> Vec<Span> {
    let mut reader = ShellReader::new(text, span);
    while reader.next().is_some() {}
    reader.comments
}

/// State inside a quoted text whose gaps are skipped, see `quote_gaps`.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuoteGaps {
    /// The quote that the text is in.
    pub outer: u8,
    /// Whether the current place is outside this quote.
    pub left: bool,
    /// Whether the text in the gap has different quotes.
    pub quoted: bool,
}

/// Parses the statements of a text, one at a time.
pub(crate) struct ShellReader<'a> {
    /// The text up to the end of the part that is read.
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) hopeless: Hopeless,
    /// Statements that are parsed but not taken yet.
    statements: VecDeque<ShellStatement<'a>>,
    troubles: Vec<Trouble>,
    comments: Vec<Span>,
    /// The command that is being read.
    command: SimpleCommand<'a>,
    /// The open blocks.
    blocks: Vec<ShellBlock>,
    /// Whether `name()` was just read, so that its body follows.
    function: bool,
    /// Set if the text is inside a quote with gaps.
    pub(super) seams: Option<QuoteGaps>,
    /// Whether `&&` or `||` was read last, so that the list continues on the next line.
    goes_on: bool,
    /// Here-documents that are not read completely.
    pub(super) documents: Vec<Announced<'a>>,
    /// Set once a here-document was found to have no end.
    pub(super) document_hopeless: bool,
    /// Whether `|` was read last, so that the pipeline continues.
    pipes: bool,
    /// The file descriptor before a redirection.
    descriptor: Option<&'a str>,
    /// Whether the lines start with `>`, as in a quotation.
    is_quotation: bool,
}

impl<'a> Iterator for ShellReader<'a> {
    type Item = ShellStatement<'a>;

    fn next(&mut self) -> Option<ShellStatement<'a>> {
        while self.statements.is_empty() && self.step() {}
        self.statements.pop_front()
    }
}

impl<'a> ShellReader<'a> {
    /// Reads the part `span` of a text.
    pub fn new(text: &'a str, span: Span) -> Self {
        Self {
            text: text.get(..span.end).unwrap_or(text),
            at: span.start,
            hopeless: Hopeless::default(),
            statements: VecDeque::new(),
            troubles: Vec::new(),
            comments: Vec::new(),
            command: SimpleCommand::default(),
            blocks: Vec::new(),
            function: false,
            seams: None,
            goes_on: false,
            documents: Vec::new(),
            document_hopeless: false,
            pipes: false,
            descriptor: None,
            is_quotation: span.start > 0 && text.get(span.start..span.end).is_some_and(|part| part.starts_with("> ")),
        }
    }

    /// The problems found so far.
    pub fn into_troubles(self) -> Vec<Trouble> {
        self.troubles
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        if self.troubles.len() < MOST_TROUBLES {
            self.troubles.push(trouble);
        }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes().get(self.at + ahead).copied()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes().get(self.at..).unwrap_or_default()
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Reads one token; false at the end.
    fn step(&mut self) -> bool {
        self.skip_blanks();
        let Some(byte) = self.peek(0) else {
            self.end_pipeline();
            self.read_documents();
            self.close_block();
            // Blocks that the text leaves open are closed one by one, each with its statement.
            return !self.statements.is_empty();
        };
        match byte {
            b'\n' => {
                // A pipe at the end of a line continues on the next one.
                if !self.pipes {
                    self.end_pipeline();
                }
                self.at += 1;
                self.read_documents();
                if !self.goes_on {
                    self.close_lists();
                }
            }
            b'#' => self.comment(),
            b'&' if self.peek(1) == Some(b'>') => self.redirection(),
            b'&' | b'|' if self.peek(1) == Some(byte) => self.and_or(byte == b'|'),
            b'|' => {
                self.finish();
                self.pipes = true;
                self.at += 1;
            }
            b';' | b'&' => {
                self.end_pipeline();
                self.at += 1;
                self.close_lists();
                if byte == b';' && matches!(self.peek(0), Some(b';' | b'&')) {
                    self.next_case();
                }
            }
            b'(' => self.opening_parenthesis(),
            b')' => {
                self.end_pipeline();
                self.at += 1;
                self.close_lists();
                if self.blocks.last() == Some(&ShellBlock::Subshell) {
                    self.close_block();
                }
            }
            b'<' | b'>' => self.redirection(),
            _ => self.item(),
        }
        true
    }

    pub(super) fn open_block(&mut self, block: ShellBlock) {
        self.blocks.push(block);
        self.statements.push_back(ShellStatement::BlockOpens(block));
    }

    /// Starts the next branch of the innermost block.
    pub(super) fn turn_block(&mut self) {
        self.statements.push_back(ShellStatement::BlockTurns);
    }

    fn close_block(&mut self) {
        if self.blocks.pop().is_some() {
            self.statements.push_back(ShellStatement::BlockCloses);
        }
    }

    /// Closes the list that ends here.
    fn close_lists(&mut self) {
        while self.blocks.last() == Some(&ShellBlock::List) {
            self.close_block();
        }
    }

    pub(super) fn innermost(&self) -> Option<ShellBlock> {
        self.blocks.last().copied()
    }

    /// `&&` and `||`: the following command may not run; after `||` it runs if the previous one did
    /// not succeed.
    fn and_or(&mut self, or: bool) {
        self.end_pipeline();
        self.at += 2;
        self.goes_on = true;
        match self.innermost() {
            Some(ShellBlock::List) if or => self.turn_block(),
            Some(ShellBlock::List) => {}
            _ => self.open_block(ShellBlock::List),
        }
        self.statements.push_back(ShellStatement::AndOr { or });
    }

    fn opening_parenthesis(&mut self) {
        if self.arithmetic() {
            return;
        }
        self.at += 1;
        self.goes_on = false;
        if self.command.words.len() == 1 && self.peek(0) == Some(b')') {
            // `name()`: the body follows in braces.
            self.command = SimpleCommand::default();
            self.at += 1;
            self.function = true;
            return;
        }
        self.finish();
        self.open_block(ShellBlock::Subshell);
    }

    /// Whether no word of the current command was read.
    pub(super) fn begins_command(&self) -> bool {
        self.command.words.is_empty() && self.command.assignments.is_empty()
    }

    pub(super) fn push_word(&mut self, word: ShellWord<'a>) {
        if self.command.words.len() < MOST_WORDS {
            self.command.words.push(word);
        }
    }

    pub(super) fn push_statement(&mut self, statement: ShellStatement<'a>) {
        self.statements.push_back(statement);
    }

    /// Ends the command that is being read.
    fn finish(&mut self) {
        self.descriptor = None;
        let command = std::mem::take(&mut self.command);
        if !command.words.is_empty() || !command.assignments.is_empty() {
            self.pass_documents_through(&command);
            self.statements.push_back(ShellStatement::Command(command));
        }
    }

    /// Ends the command that is being read, and with it the pipeline.
    fn end_pipeline(&mut self) {
        self.finish();
        self.pipes = false;
        self.complete_documents();
    }

    /// Skips blanks, carriage returns and continued lines.
    pub(super) fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\r' | 0x0B | 0x0C => self.at += 1,
                b'\\' => match self.continuation().or_else(|| self.commented_continuation()) {
                    Some(width) => self.at += width,
                    None => return,
                },
                b'`' | b'^' => match self.continuation_elsewhere() {
                    Some(width) => self.at += width,
                    None => return,
                },
                b'\'' | b'"' if self.seam() => {}
                _ => return,
            }
        }
    }

    /// The width of a line continuation of PowerShell (a backquote) or Windows' command processor
    /// (`^`), if the next line starts with a flag.
    fn continuation_elsewhere(&self) -> Option<usize> {
        let rest = self.rest();
        let after_blank = self.at > 0 && matches!(self.bytes().get(self.at - 1), Some(b' ' | b'\t'));
        let width = 1 + usize::from(rest.get(1) == Some(&b'\r'));
        if !after_blank || rest.get(width) != Some(&b'\n') {
            return None;
        }
        let next = rest.get(width + 1..)?.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
        (next == Some(&b'-')).then_some(width + 1)
    }

    /// The width of a line continuation at the current place. Blanks after the backslash are a
    /// mistake: they are reported, and the line counts as continued.
    pub(super) fn continuation(&mut self) -> Option<usize> {
        // These two bytes encode a no-break space.
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0xC2 | 0xA0);
        let blanks = self.rest().iter().skip(1).take_while(|byte| is_blank(byte)).count();
        if self.rest().len() == 1 && self.at > 0 {
            // A shell drops it at the end of a script.
            return Some(1);
        }
        if self.peek(1 + blanks) != Some(b'\n') {
            return None;
        }
        let between = self.slice(self.at + 1, self.at + 1 + blanks);
        if between.chars().any(|letter| !matches!(letter, ' ' | '\t' | '\r' | '\u{a0}')) {
            return None;
        }
        let is_odd = between.contains('\u{a0}');
        if between.contains(|letter| letter != '\r') {
            self.trouble(Trouble::BlankAfterBackslash { span: Span::new(self.at, self.at + 1 + blanks), is_odd });
        }
        Some(2 + blanks)
    }

    /// The width of a backslash, a comment and the line end, if the next line starts with a flag or
    /// `...`: a shell starts a new command there, but a continuation was meant.
    fn commented_continuation(&mut self) -> Option<usize> {
        let rest = self.rest();
        let blanks = rest.iter().skip(1).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if blanks == 0 || rest.get(1 + blanks) != Some(&b'#') {
            return None;
        }
        let line = rest.iter().position(|byte| *byte == b'\n')?;
        let next = rest.get(line + 1..)?.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
        // Pages write `...` for omitted text.
        if !matches!(next, Some(b'-' | b'.')) {
            return None;
        }
        let carriage_return = usize::from(rest.get(line - 1) == Some(&b'\r'));
        let comment = Span::new(self.at + 1 + blanks, self.at + line - carriage_return);
        self.comments.push(comment);
        self.trouble(Trouble::CommentAfterBackslash(comment));
        Some(line + 1)
    }

    pub(super) fn comment(&mut self) {
        let length = self.rest().iter().position(|byte| *byte == b'\n').unwrap_or(self.rest().len());
        let end = self.at + length;
        let carriage_return = length > 0 && self.bytes().get(end - 1) == Some(&b'\r');
        self.comments.push(Span::new(self.at, end - usize::from(carriage_return)));
        self.at = end;
    }

    fn redirection(&mut self) {
        if self.placeholder().is_some() {
            self.word_with_placeholders();
            return;
        }
        if self.is_quoting() {
            self.at += 1;
            return;
        }
        let document = self.rest().starts_with(b"<<") && !self.rest().starts_with(b"<<<");
        let length = self.rest().iter().take_while(|byte| matches!(byte, b'<' | b'>' | b'&')).count();
        let operator = self.slice(self.at, self.at + length);
        let of_output = self.descriptor.take().is_none_or(|descriptor| descriptor == "1");
        self.at += length;
        let strips_tabs = document && self.peek(0) == Some(b'-');
        self.at += usize::from(strips_tabs);
        self.skip_blanks();
        if self.peek(0) == Some(b'(') {
            let end = self.hopeless.end_of(Opener::Parenthesis, self.bytes(), self.at + 1);
            self.at = end.unwrap_or(self.at + 1);
            return;
        }
        let Some(word) = self.word(false) else { return };
        if document {
            self.announce(&word, strips_tabs);
        } else if of_output && matches!(operator, ">" | ">>" | "&>" | "&>>") {
            self.command.writes = Some(word);
        }
    }

    /// Whether `>` starts a line of a quotation: the first line started with it too, or a flag
    /// follows, which cannot be a file name.
    fn is_quoting(&self) -> bool {
        let before = self.text.get(..self.at).unwrap_or_default().trim_end_matches([' ', '\t', '>']);
        let after = self.rest().iter().skip(1).find(|byte| !matches!(byte, b' ' | b'\t' | b'>'));
        (before.is_empty() || before.ends_with('\n'))
            && self.peek(0) == Some(b'>')
            && (self.is_quotation || after == Some(&b'-'))
    }

    /// A word that contains placeholders, with adjoining text: a scheme before an address, a port
    /// after it.
    fn word_with_placeholders(&mut self) {
        let mut span = Span::new(self.at, self.at);
        if let Some(before) = self.command.words.pop_if(|word| word.span.end == span.start) {
            span.start = before.span.start;
        }
        loop {
            match self.placeholder() {
                Some(width) => self.at += width,
                None if self.word(false).is_some() => {}
                None => break,
            }
        }
        span.end = self.at;
        self.push_word(ShellWord { parts: WordParts::One(WordPart::Opaque), span });
    }

    /// The width of a `<PLACEHOLDER>` of documentation, which is not a redirection.
    fn placeholder(&self) -> Option<usize> {
        let name = self.rest().strip_prefix(b"<")?;
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b'.' | b' ');
        let length = name.iter().take(80).take_while(|byte| inner(byte)).count();
        (length > 0 && name.first() != Some(&b' ') && name.get(length) == Some(&b'>')).then_some(length + 2)
    }

    /// A placeholder of any words as an assigned value: `MODEL=<your model, for instance org/m>`.
    fn assigned_placeholder(&mut self) -> Option<ShellWord<'a>> {
        let (start, rest) = (self.at, self.rest());
        let is_placeholder = rest.first() == Some(&b'<') && rest.get(1).is_some_and(|byte| !b"<( ".contains(byte));
        let end = rest.iter().take(LONGEST_PLACEHOLDER).position(|byte| matches!(byte, b'>' | b'\n'));
        let length = end.filter(|end| is_placeholder && rest.get(*end) == Some(&b'>'))? + 1;
        self.at += length;
        Some(ShellWord { parts: WordParts::One(WordPart::Opaque), span: Span::new(start, self.at) })
    }

    /// A word, an assignment or an array.
    fn item(&mut self) {
        let start = self.at;
        self.goes_on = false;
        self.pipes = false;
        if let Some((name, append)) = self.assignment_name() {
            let value_start = start + name.len() + 1 + usize::from(append);
            if self.bytes().get(value_start) == Some(&b'(') {
                self.array(name, append, value_start + 1);
                return;
            }
            let declares =
                |first: &str| matches!(first, "export" | "local" | "declare" | "readonly" | "typeset" | "env" | "set");
            if self.command.words.first().is_none_or(|first| first.text().is_some_and(declares)) {
                self.at = value_start;
                let value = self.assigned_placeholder().or_else(|| self.word(false)).unwrap_or_else(|| ShellWord {
                    parts: WordParts::default(),
                    span: Span::new(value_start, value_start),
                });
                self.command.assignments.push(Assignment { name, append, value });
                return;
            }
        }
        let Some(word) = self.word(false) else {
            // Only a byte that opens nothing can stop here; skipping it guarantees progress.
            self.at += 1;
            return;
        };
        let digits = || self.slice(start, self.at).bytes().all(|byte| byte.is_ascii_digit());
        if matches!(self.peek(0), Some(b'<' | b'>')) && digits() {
            self.descriptor = Some(self.slice(start, self.at));
            return;
        }
        if self.command.words.is_empty() && self.command.assignments.is_empty() && self.keyword(&word) {
            return;
        }
        let is_test = self.command.words.is_empty() && word.text() == Some("[[");
        self.push_word(word);
        if is_test {
            self.double_brackets();
        }
    }

    /// Handles a reserved word in command position.
    fn keyword(&mut self, word: &ShellWord<'_>) -> bool {
        let plain = word.text().filter(|text| text.len() == word.span.end - word.span.start);
        match plain {
            Some("{") if std::mem::take(&mut self.function) => self.open_block(ShellBlock::Function),
            Some("if") => self.open_block(ShellBlock::If),
            Some("while") => self.open_block(ShellBlock::While),
            Some("until") => self.open_block(ShellBlock::Until),
            Some("{") => self.open_block(ShellBlock::Group),
            Some("case") => self.case(),
            Some("function") => {
                self.skip_blanks();
                self.function = self.word(false).is_some();
                if self.bytes().get(self.at..).is_some_and(|rest| rest.starts_with(b"()")) {
                    self.at += 2;
                }
            }
            Some("for" | "select") => {
                self.open_block(ShellBlock::Other);
                return false; // the loop variable follows
            }
            Some("fi" | "done" | "esac" | "}") => {
                self.close_lists();
                self.close_block();
            }
            Some("else" | "elif") => {
                self.close_lists();
                match self.blocks.is_empty() {
                    true => self.open_block(ShellBlock::Other),
                    false => self.turn_block(),
                }
            }
            Some("then" | "do") => {
                self.close_lists();
                self.statements.push_back(ShellStatement::Then);
            }
            Some("!") => self.command.is_negated = !self.command.is_negated,
            Some("time" | "in") => {}
            _ => return false,
        }
        true
    }

    /// `NAME=` or `NAME+=` at the current place.
    fn assignment_name(&self) -> Option<(&'a str, bool)> {
        let rest = self.rest();
        let length = name_length(rest);
        let append = rest.get(length) == Some(&b'+') && rest.get(length + 1) == Some(&b'=');
        (length > 0 && (append || rest.get(length) == Some(&b'=')))
            .then(|| (self.slice(self.at, self.at + length), append))
    }

    fn array(&mut self, name: &'a str, append: bool, from: usize) {
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
                    self.trouble(Trouble::UnclosedArray(name_span));
                    break;
                }
                Some(_) => match self.word(true) {
                    Some(word) if words.len() < MOST_WORDS => words.push(word),
                    Some(_) => {}
                    None => self.at += 1,
                },
                None => {
                    self.trouble(Trouble::UnclosedArray(name_span));
                    break;
                }
            }
        }
        let span = Span::new(start, self.at);
        self.statements.push_back(ShellStatement::Array(Array { name, name_span, append, words, span }));
    }

    fn array_begins(&self) -> bool {
        let at_line_start = self.at == 0 || self.bytes().get(self.at - 1) == Some(&b'\n');
        at_line_start
            && self.assignment_name().is_some_and(|(name, append)| {
                self.bytes().get(self.at + name.len() + 1 + usize::from(append)) == Some(&b'(')
            })
    }
}

/// The length of the variable name at the start of some bytes.
pub(crate) fn name_length(bytes: &[u8]) -> usize {
    let first = bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    if first { bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count() } else { 0 }
}
