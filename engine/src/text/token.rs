//! One token as text and as bytes, for log-probabilities.

use tokenizers::{DecoderWrapper, Tokenizer};

/// The contents of a token. A token may be only a part of a character, so it always has bytes, but
/// not always text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenText {
    /// Its text; bytes that are not valid text are written as OpenAI does, `bytes:\xe6\x97`, so
    /// that no two tokens look alike.
    pub text: String,
    /// Its bytes in the text.
    pub bytes: Vec<u8>,
}

impl TokenText {
    /// The tokenizer's entry for the token; empty if it does not exist.
    pub fn from_tokenizer(tokenizer: &Tokenizer, token: u32) -> Self {
        let added = tokenizer.get_added_vocabulary().simple_id_to_token(token);
        let bytes = match (added, tokenizer.id_to_token(token)) {
            (Some(added), _) => added.into_bytes(),
            (None, Some(piece)) if tokenizer.get_decoder().is_some_and(is_byte_level) => byte_level(&piece),
            (None, Some(piece)) => byte_fallback(&piece),
            (None, None) => Vec::new(),
        };
        let text = String::from_utf8(bytes.clone()).unwrap_or_else(|_| {
            let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", escaped.collect::<String>())
        });
        Self { text, bytes }
    }
}

fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteLevel(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(is_byte_level),
        _ => false,
    }
}

/// Bytes of a piece of a byte-level vocabulary (GPT-2's): a printable byte represents itself, the
/// others are numbered from U+0100 on. A piece that does not follow this scheme represents its own
/// text.
fn byte_level(piece: &str) -> Vec<u8> {
    let prints = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let byte = |character: char| match u8::try_from(character) {
        Ok(byte) => prints(byte).then_some(byte),
        Err(_) => {
            let number = (character as usize).checked_sub(0x100)?;
            (0..=u8::MAX).filter(|byte| !prints(*byte)).nth(number)
        }
    };
    piece.chars().map(byte).collect::<Option<_>>().unwrap_or_else(|| piece.into())
}

/// Bytes of a piece of a SentencePiece vocabulary: `<0xE6>` is a byte, `▁` is a space.
fn byte_fallback(piece: &str) -> Vec<u8> {
    let digits = piece.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match digits.filter(|digits| digits.len() == 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => piece.replace('▁', " ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checkpoint::Folder, text::Text};

    #[test]
    fn the_bytes_of_tokens_add_up_to_the_text() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny/target");
        let folder = Folder::open(folder.as_ref()).expect("the demo model");
        let tiny = Text::open(&folder).expect("a tokenizer").expect("there is one");
        let text = "fn main() {\n\t// 日本語 — ünïcödé 🦀\u{a0}\u{7f} }";
        let tokens: Vec<TokenText> =
            tiny.encode(text).expect("it encodes").into_iter().map(|token| tiny.token(token)).collect();
        let special = "<|begin_of_text|>";
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.bytes.clone()).collect();
        assert_eq!(String::from_utf8(bytes).expect("text").trim_start_matches(special), text);
        assert!(tokens.iter().any(|token| token.text.starts_with("bytes:\\x")), "{tokens:?}");
        assert_eq!(tiny.token(u32::MAX), TokenText { text: String::new(), bytes: Vec::new() });
    }

    #[test]
    fn pieces_of_both_kinds_of_vocabulary() {
        for (piece, expected) in
            [("Ġthe", b" the".as_slice()), ("æĹ", b"\xe6\x97"), ("Ċ", b"\n"), ("日", "日".as_bytes())]
        {
            assert_eq!(byte_level(piece), expected, "{piece}");
        }
        for (piece, expected) in [("▁the", b" the".as_slice()), ("<0xE6>", b"\xe6"), ("<0xZZ>", b"<0xZZ>")] {
            assert_eq!(byte_fallback(piece), expected, "{piece}");
        }
    }
}
