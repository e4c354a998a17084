//! Tokenises texts that may be far too long; stops early once the limit is exceeded.

use tokenizers::Tokenizer;

use super::Text;
use crate::error::EngineError;

/// Maximum number of tokens at the end of a piece of a text that may be different in the whole
/// text.
const UNCERTAIN: usize = 64;

/// Number of bytes that are always encoded in one go.
const SHORT: usize = 16 << 10;

/// The tokens of a text, if they are within a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// All tokens.
    Tokens(Vec<u32>),
    /// There are at least this many tokens, which exceeds the limit. Not all of them were computed.
    TooMany {
        /// Lower bound of their number.
        least: usize,
    },
    /// Cancelled by the caller.
    Stopped,
}

impl Text {
    /// Tokens of a text if there are at most `most`, including the tokenizer's special tokens
    /// around it if `special`. A text that must have more is recognised by its length in bytes, and
    /// one that turns out to have more by the tokens of its beginning, so time and memory are
    /// bounded by `most` instead of the text's length. `go_on` is called between steps, and cancels
    /// by returning false.
    ///
    /// # Errors
    /// When the tokenizer cannot encode it.
    pub fn encode_within(
        &self,
        text: &str,
        special: bool,
        most: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Encoded, EngineError> {
        let least = text.len() / self.longest_token;
        if least > most.saturating_add(UNCERTAIN) {
            return Ok(Encoded::TooMany { least });
        }
        // Most texts have three to four bytes per token, so a text of twice as many may still be
        // within the limit.
        let mut piece = most.saturating_mul(4).max(SHORT);
        while piece < text.len() {
            if !go_on() {
                return Ok(Encoded::Stopped);
            }
            let count = self.encoded(&text[..floor_char_boundary(text, piece)], special)?.len();
            if count > most.saturating_add(UNCERTAIN) {
                return Ok(Encoded::TooMany { least: count - UNCERTAIN });
            }
            piece = piece.saturating_mul(2);
        }
        if !go_on() {
            return Ok(Encoded::Stopped);
        }
        let tokens = self.encoded(text, special)?;
        Ok(if tokens.len() > most { Encoded::TooMany { least: tokens.len() } } else { Encoded::Tokens(tokens) })
    }

    /// Length of the longest token in bytes.
    pub fn longest_token(&self) -> usize {
        self.longest_token
    }
}

/// Length of the longest token in bytes, at least 1. A piece of a byte-level vocabulary has at
/// least as many bytes as its text.
pub(super) fn longest_token(tokenizer: &Tokenizer) -> usize {
    tokenizer.get_vocab(true).keys().map(String::len).max().unwrap_or_default().max(1)
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Folder;

    fn tiny() -> Text {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny/target");
        let folder = Folder::open(folder.as_ref()).expect("the demo model");
        Text::open(&folder).expect("a tokenizer").expect("there is one")
    }

    #[test]
    fn texts_within_the_limit_are_encoded_whole_and_others_are_not() {
        let text = tiny();
        let check = |prompt: &str, most: usize, fits: bool| {
            let all = text.encode(prompt).expect("it encodes");
            match text.encode_within(prompt, true, most, &|| true).expect("it encodes") {
                Encoded::Tokens(tokens) => assert!(fits && tokens == all, "{most} of {}", all.len()),
                Encoded::TooMany { least } => assert!(!fits && least > most && least <= all.len(), "{least}"),
                Encoded::Stopped => panic!("it was not stopped"),
            }
        };
        let prompt = "fn main() { // 日本語 — ünïcödé 🦀 }\n".repeat(2000);
        let count = text.encode(&prompt).expect("it encodes").len();
        assert!(count > 20_000, "{count}");
        check("fn main", 16, true);
        check("", 1, true);
        check(&prompt, count, true);
        check(&prompt, count - 1, false);
        check(&prompt, 2048, false);
        check(&prompt, 16, false);
    }

    #[test]
    fn a_text_of_megabytes_is_refused_without_being_encoded_and_a_caller_may_stop() {
        let text = tiny();
        let long = "a ".repeat(4 << 20);
        let begin = std::time::Instant::now();
        let found = text.encode_within(&long, true, 2048, &|| panic!("no step is made")).expect("it encodes");
        assert!(matches!(found, Encoded::TooMany { least } if least > 2048), "{found:?} {:?}", begin.elapsed());
        let prompt = "let x = 1;".repeat(10_000);
        assert_eq!(text.encode_within(&prompt, true, 1 << 20, &|| false).expect("it encodes"), Encoded::Stopped);
    }
}
