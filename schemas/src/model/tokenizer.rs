//! Facts about the vocabulary of a tokenizer.json, which itself is not kept.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Maximum length of a tokenizer.json that is read, in bytes; published ones reach tens of MiB.
const LONGEST_TOKENIZER: usize = 128 << 20;

/// The vocabulary of a tokenizer, added tokens included (what `get_vocab` of transformers gives).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// Number of tokens that have an id.
    pub tokens: u64,
    /// One more than the largest id.
    pub vocab_size: u64,
    /// Equal for two tokenizers that give every token the same id, regardless of the order in their
    /// files. Different for any others, except with a probability of 2^-64.
    pub digest: u64,
}

/// The text is not a usable tokenizer.json.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// Not JSON, or not a tokenizer.
    #[error("not a valid tokenizer.json: {0}")]
    Json(#[from] serde_json::Error),
    /// Longer than the limit; the value is its length in bytes.
    #[error("not a valid tokenizer.json: {0} bytes, the limit is {LONGEST_TOKENIZER}")]
    TooLarge(usize),
}

impl TokenizerFacts {
    /// Reads the text of a tokenizer.json.
    ///
    /// # Errors
    /// If the text is too long, is not JSON or has no vocabulary.
    pub fn parse(text: &str) -> Result<Self, TokenizerError> {
        if text.len() > LONGEST_TOKENIZER {
            return Err(TokenizerError::TooLarge(text.len()));
        }
        let file: TokenizerFile = serde_json::from_str(text)?;
        let mut ids = file.model.vocab.0;
        ids.extend(file.added_tokens.into_iter().map(|token| (token.content, token.id)));
        let mut facts = Self { tokens: ids.len() as u64, ..Self::default() };
        for (token, id) in &ids {
            facts.vocab_size = facts.vocab_size.max(id.saturating_add(1));
            // A sum does not depend on the order.
            facts.digest = facts.digest.wrapping_add(hash(token, *id));
        }
        Ok(facts)
    }
}

#[derive(Deserialize)]
struct TokenizerFile {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct Model {
    vocab: TokenizerVocabulary,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u64,
    content: String,
}

/// Ids by token: an object of ids (BPE, WordPiece, WordLevel), or a list of tokens with their
/// scores (Unigram).
struct TokenizerVocabulary(HashMap<String, u64>);

impl<'de> Deserialize<'de> for TokenizerVocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = TokenizerVocabulary;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of token ids or a list of tokens with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TokenizerVocabulary, A::Error> {
                let mut ids = HashMap::new();
                while let Some((token, id)) = map.next_entry::<String, u64>()? {
                    ids.insert(token, id);
                }
                Ok(TokenizerVocabulary(ids))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TokenizerVocabulary, A::Error> {
                let mut ids = HashMap::new();
                let mut id = 0;
                while let Some((token, _)) = list.next_element::<(String, IgnoredAny)>()? {
                    ids.insert(token, id);
                    id += 1;
                }
                Ok(TokenizerVocabulary(ids))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// FNV-1a over the token and its id, then mixed so that sums of hashes distinguish different sets
/// of pairs.
fn hash(token: &str, id: u64) -> u64 {
    let bytes = token.bytes().chain(id.to_le_bytes());
    let hash =
        bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> TokenizerFacts {
        TokenizerFacts::parse(text).expect("a tokenizer")
    }

    #[test]
    fn the_digest_is_of_tokens_and_ids_only() {
        let one = facts(r#"{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}"#);
        assert_eq!((one.tokens, one.vocab_size), (2, 2));
        assert_eq!(one, facts(r#"{"version": "1", "model": {"vocab": {"b": 1, "a": 0}}, "added_tokens": []}"#));
        assert_eq!(one, facts(r#"{"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", 0]]}}"#));
        assert_ne!(one.digest, facts(r#"{"model": {"vocab": {"b": 0, "a": 1}}}"#).digest);
    }

    #[test]
    fn added_tokens_count_once() {
        let text = r#"{"model": {"vocab": {"a": 0, "<s>": 1}},
                       "added_tokens": [{"id": 1, "content": "<s>"}, {"id": 9, "content": "</s>"}]}"#;
        let found = facts(text);
        assert_eq!((found.tokens, found.vocab_size), (3, 10));
    }

    #[test]
    fn what_has_no_vocabulary_is_an_error() {
        for text in ["", "{}", r#"{"model": {}}"#, r#"{"model": {"vocab": 3}}"#, r#"{"model": {"vocab": {"a": -1}}}"#] {
            assert!(TokenizerFacts::parse(text).is_err(), "{text}");
        }
    }
}
