//! Finds the end of a quote or a substitution, including everything nested in it.

/// The opening delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    /// `"`.
    Double,
    /// `$(` or `(`.
    Parenthesis,
    /// `${`.
    Brace,
    /// A backquote.
    Backquote,
}

/// Openers that were found unclosed: from there on they are plain text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hopeless {
    double: bool,
    parenthesis: bool,
    brace: bool,
    backquote: bool,
    single: bool,
    /// Here-documents.
    document: bool,
}

/// Maximum number of here-documents on one line of a substitution.
const MOST_DOCUMENTS: usize = 8;

impl Hopeless {
    fn slot(&mut self, opener: Opener) -> &mut bool {
        match opener {
            Opener::Double => &mut self.double,
            Opener::Parenthesis => &mut self.parenthesis,
            Opener::Brace => &mut self.brace,
            Opener::Backquote => &mut self.backquote,
        }
    }

    /// The offset just after the closing delimiter, given the offset just after the opener. Works
    /// on bytes with an explicit stack, so deep nesting uses no call stack and stays fast.
    pub fn end_of(&mut self, opener: Opener, text: &[u8], from: usize) -> Option<usize> {
        if *self.slot(opener) {
            return None;
        }
        let end = self.search(opener, text, from);
        if end.is_none() {
            *self.slot(opener) = true;
        }
        end
    }

    /// The offset of the closing `'`.
    pub fn end_of_single(&mut self, text: &[u8], from: usize) -> Option<usize> {
        if self.single {
            return None;
        }
        let end = text.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\'')).map(|at| from + at);
        self.single = end.is_none();
        end
    }

    fn search(&mut self, opener: Opener, text: &[u8], from: usize) -> Option<usize> {
        let mut stack = vec![opener];
        // Number of open double quotes in the innermost command, and in the enclosing ones: a
        // command substitution starts unquoted, even inside quotes.
        let mut doubles = usize::from(opener == Opener::Double);
        let mut around = Vec::new();
        // Delimiters of here-documents whose bodies start on the next line.
        let mut documents: Vec<&[u8]> = Vec::new();
        let mut at = from;
        while let Some(byte) = text.get(at).copied() {
            let top = *stack.last()?;
            let next = text.get(at + 1).copied();
            at += 1;
            let opens = match (top, byte, next) {
                (_, b'\\', _) => {
                    at += 1;
                    None
                }
                (Opener::Backquote, b'`', _)
                | (Opener::Double, b'"', _)
                | (Opener::Parenthesis, b')', _)
                | (Opener::Brace, b'}', _) => {
                    match top {
                        Opener::Double => doubles -= 1,
                        Opener::Parenthesis => doubles = around.pop().unwrap_or_default(),
                        Opener::Brace | Opener::Backquote => {}
                    }
                    stack.pop();
                    if stack.is_empty() {
                        return Some(at);
                    }
                    None
                }
                (Opener::Backquote, _, _) => None,
                (_, b'$', Some(b'(')) => Some((Opener::Parenthesis, 1)),
                (_, b'$', Some(b'{')) => Some((Opener::Brace, 1)),
                (_, b'`', _) => Some((Opener::Backquote, 0)),
                (Opener::Double, _, _) => None,
                (_, b'"', _) => Some((Opener::Double, 0)),
                (Opener::Parenthesis, b'<', Some(b'<')) if !is_arithmetic(&stack) => {
                    at = self.announced(text, at + 1, &mut documents);
                    None
                }
                (Opener::Parenthesis, b'\n', _) if !documents.is_empty() => {
                    at = self.after_documents(text, at, std::mem::take(&mut documents));
                    None
                }
                (Opener::Parenthesis, b'(', _) => Some((Opener::Parenthesis, 0)),
                (Opener::Parenthesis, b'\'', _) | (Opener::Brace, b'\'', _) if doubles == 0 => {
                    // An unclosed quote is an apostrophe.
                    at = self.end_of_single(text, at).map_or(at, |end| end + 1);
                    None
                }
                _ => None,
            };
            if let Some((inner, width)) = opens {
                match inner {
                    Opener::Double => doubles += 1,
                    Opener::Parenthesis => around.push(std::mem::take(&mut doubles)),
                    Opener::Brace | Opener::Backquote => {}
                }
                stack.push(inner);
                at += width;
            }
        }
        None
    }
}

impl Hopeless {
    /// Notes the delimiter after `<<`, and returns the offset after it.
    fn announced<'t>(&self, text: &'t [u8], at: usize, documents: &mut Vec<&'t [u8]>) -> usize {
        let rest = text.get(at..).unwrap_or_default();
        let skipped = rest.iter().take_while(|byte| matches!(byte, b'-' | b' ' | b'\'' | b'"' | b'\\')).count();
        let name = rest.get(skipped..).unwrap_or_default();
        let length = name.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let is_name = name.first().is_some_and(|first| !first.is_ascii_digit()) && length > 0;
        if self.document || !is_name || rest.first() == Some(&b'<') || documents.len() >= MOST_DOCUMENTS {
            return at;
        }
        documents.push(name.get(..length).unwrap_or_default());
        let closing = name.get(length).filter(|byte| matches!(byte, b'\'' | b'"'));
        at + skipped + length + usize::from(closing.is_some())
    }

    /// The offset of the first line after the bodies of here-documents. One without an end is
    /// commands.
    fn after_documents(&mut self, text: &[u8], from: usize, delimiters: Vec<&[u8]>) -> usize {
        let mut at = from;
        for delimiter in delimiters {
            let mut line = at;
            let end = loop {
                let Some(rest) = text.get(line..).filter(|rest| !rest.is_empty()) else { break None };
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                if rest.get(..length).is_some_and(|text| text.trim_ascii() == delimiter) {
                    break Some(line + length);
                }
                line += length + 1;
            };
            let Some(end) = end else {
                self.document = true;
                return at;
            };
            at = end;
        }
        at
    }
}

/// Whether the innermost parentheses are those of arithmetic, where `<<` is a shift.
fn is_arithmetic(stack: &[Opener]) -> bool {
    matches!(stack, [.., Opener::Parenthesis, Opener::Parenthesis])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(opener: Opener, text: &str, expected: Option<&str>) {
        let end = Hopeless::default().end_of(opener, text.as_bytes(), 0);
        assert_eq!(end.map(|end| &text[..end]), expected, "{text}");
    }

    #[test]
    fn nested_constructs_close_in_turn() {
        check(Opener::Double, r#"a $(b "c" ')' d) e" f"#, Some(r#"a $(b "c" ')' d) e""#));
        check(Opener::Parenthesis, "seq 1 $(( 2 * (3) )) ) x", Some("seq 1 $(( 2 * (3) )) )"));
        check(Opener::Brace, "X:-${Y:-z}} tail", Some("X:-${Y:-z}}"));
        check(Opener::Double, r#"$(sed 's/a("b)/') ${X:-'} y" z"#, Some(r#"$(sed 's/a("b)/') ${X:-'} y""#));
        check(Opener::Double, r#"$(a "$(b ')')" ')') x" y"#, Some(r#"$(a "$(b ')')" ')') x""#));
        check(Opener::Double, r#"it's \" fine" x"#, Some(r#"it's \" fine""#));
        check(Opener::Double, "never", None);
        check(Opener::Parenthesis, "don't close)", Some("don't close)"));
        let with_program = "python3 - <<'PY'\nprint(\"it's ( open\")\nPY\n)";
        check(Opener::Parenthesis, &format!("{with_program} x"), Some(with_program));
        check(Opener::Parenthesis, "echo $(( 1 << n ))\nn) x", Some("echo $(( 1 << n ))\nn)"));
        check(Opener::Parenthesis, "cat <<EOF\nno end)", Some("cat <<EOF\nno end)"));
    }

    #[test]
    fn what_did_not_close_once_is_not_looked_for_again() {
        let mut hopeless = Hopeless::default();
        assert_eq!(hopeless.end_of(Opener::Brace, b"x", 0), None);
        assert_eq!(hopeless.end_of(Opener::Brace, b"x}", 0), None);
        assert_eq!(hopeless.end_of(Opener::Double, b"x\"", 0), Some(2));
    }
}
