//! OpenAI's older format of log-probabilities: parallel lists.

use engine::{
    backend::{ProducedToken, TokenLogprobs},
    text::Text,
};
use serde_json::{Map, Value, json};

/// The lists of a choice.
pub struct Lists<'a> {
    text: Option<&'a Text>,
    /// Whether special tokens are part of the output's text.
    special: bool,
    /// Offset in the choice's text at which the next token's text starts, in characters.
    pub offset: usize,
    names: Vec<String>,
    values: Vec<Option<f32>>,
    tops: Vec<Option<Map<String, Value>>>,
    offsets: Vec<usize>,
}

impl<'a> Lists<'a> {
    /// Empty lists of a choice whose next token starts at this offset.
    pub fn new(text: Option<&'a Text>, special: bool, offset: usize) -> Self {
        Self { text, special, offset, names: Vec::new(), values: Vec::new(), tops: Vec::new(), offsets: Vec::new() }
    }

    /// Adds output tokens that have log-probabilities.
    pub fn add(&mut self, tokens: &[ProducedToken]) {
        for token in tokens {
            if let Some(logprobs) = &token.logprobs {
                let bytes = self.bytes(token.id);
                let is_hidden = !self.special && self.text.is_some_and(|text| text.is_special(token.id));
                self.push(token.id, if is_hidden { &[] } else { &bytes }, Some((logprobs, logprobs.top.len())));
            }
        }
    }

    /// Adds the tokens of a prompt, of which `echoed` is the text at the start of the choice. The
    /// first one has no log-probability, and the others have as many alternatives as the output's
    /// tokens.
    pub fn add_prompt(&mut self, prompt: &[u32], echoed: &str, logprobs: &[TokenLogprobs], output: &[ProducedToken]) {
        let count = output.iter().filter_map(|token| Some(token.logprobs.as_ref()?.top.len())).max();
        let after = std::iter::once(None).chain(logprobs.iter().map(Some));
        let mut rest = echoed.as_bytes();
        for (id, one) in prompt.iter().zip(after) {
            let bytes = self.bytes(*id);
            let shown = shown(&bytes, rest, self.text.is_some_and(|text| text.is_special(*id)));
            self.push(*id, shown, one.map(|one| (one, count.unwrap_or(one.top.len()))));
            rest = rest.get(shown.len()..).unwrap_or_default();
        }
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        self.text.map(|text| text.token(id).bytes).unwrap_or_default()
    }

    /// Adds a token; `shown` is its part of the choice's text.
    fn push(&mut self, id: u32, shown: &[u8], logprobs: Option<(&TokenLogprobs, usize)>) {
        let name = |id: u32| self.text.map_or_else(|| format!("token_id:{id}"), |text| text.token(id).text);
        let written = name(id);
        let top = logprobs.map(|(one, count)| {
            let best = one.top.iter().take(count);
            let mut top: Map<_, _> = best.map(|(id, value)| (name(*id), json!(value))).collect();
            // The token itself is included even if it is not one of the best.
            top.insert(written.clone(), json!(one.logprob));
            top
        });
        // A token that starts inside a character is at that character.
        let is_inside = shown.first().is_some_and(|byte| continues(*byte));
        self.offsets.push(self.offset.saturating_sub(usize::from(is_inside)));
        self.offset += shown.iter().filter(|byte| !continues(**byte)).count();
        self.names.push(written);
        self.values.push(logprobs.map(|(one, _)| one.logprob));
        self.tops.push(top);
    }

    /// The lists as OpenAI writes them; null if they are empty.
    pub fn value(self) -> Value {
        if self.names.is_empty() {
            return Value::Null;
        }
        json!({
            "tokens": self.names, "token_logprobs": self.values, "top_logprobs": self.tops, "text_offset": self.offsets,
        })
    }
}

/// Whether a byte continues a character of UTF-8.
fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The part of a token that is at the start of a text. A special token that the tokenizer added is
/// not part of the text, nor is the space that some tokenizers put before it.
fn shown<'a>(bytes: &'a [u8], rest: &[u8], is_special: bool) -> &'a [u8] {
    match bytes.split_first() {
        _ if rest.starts_with(bytes) => bytes,
        _ if is_special => &[],
        // Many tokenizers put a space before the first word, which the text does not have.
        Some((b' ', after)) if rest.starts_with(after) => after,
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_the_text_counts() {
        let check = |bytes: &str, rest: &str, is_special: bool, expected: &str| {
            assert_eq!(shown(bytes.as_bytes(), rest.as_bytes(), is_special), expected.as_bytes(), "{bytes} {rest}");
        };
        check("def", "def main", false, "def");
        check("<|begin|>", "def main", true, "");
        check("<|begin|>", "<|begin|>def", true, "<|begin|>");
        check(" def", "def main", false, "def");
        check("\u{fffd}", "x", false, "\u{fffd}");
    }
}
