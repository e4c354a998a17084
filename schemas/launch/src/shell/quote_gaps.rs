//! Gaps where a quoted text is closed and reopened inside a word:
//! `'serve --tp 8 '"$MORE"' --page-size 1'`.

use super::lexer::{QuoteGaps, ShellReader};

impl ShellReader<'_> {
    /// Skips the places where the text leaves the quote that it is in.
    pub fn in_quotes(mut self, outer: u8) -> Self {
        self.seams = Some(QuoteGaps { outer, left: false, quoted: false });
        self
    }

    /// Skips the end or the restart of the quote here; false if there is neither.
    pub(super) fn seam(&mut self) -> bool {
        let (here, next) = (self.peek(0), self.peek(1));
        let Some(seams) = &mut self.seams else { return false };
        let width = match here {
            Some(byte) if byte == seams.outer && !seams.left => {
                seams.left = true;
                seams.quoted = byte == b'\'' && next == Some(b'"');
                1 + usize::from(seams.quoted)
            }
            Some(b'"') if seams.left && seams.quoted => {
                seams.quoted = false;
                1
            }
            Some(byte) if byte == seams.outer && !seams.quoted => {
                seams.left = false;
                1
            }
            _ => return false,
        };
        self.at += width;
        true
    }
}
