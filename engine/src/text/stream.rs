//! Text that grows token by token, with detection of stop strings.

use super::Text;

/// Maximum number of tokens of one character: one per byte, and a few that produce no text.
const LONGEST_CHARACTER: usize = 8;

/// The output text of one request.
#[derive(Clone, Debug)]
pub struct TextStream {
    text: Option<Text>,
    /// Whether special tokens are part of the text.
    special: bool,
    /// Whether the stop string that ends the text is part of it.
    keep_stop: bool,
    stops: Vec<String>,
    /// Tokens from the start whose text ends at no stop string.
    unsearched: usize,
    /// Tokens so far, those without text included.
    pushed: usize,
    tokens: Vec<u32>,
    /// Tokens before this index are only context for later ones: their text has been returned.
    context: usize,
    /// Tokens before this index have been decoded.
    read: usize,
    /// Text that may still become a stop string.
    held: String,
    /// Bytes of the held text in which no stop string may end.
    settled: usize,
    whole: String,
}

/// The effect of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grown {
    /// Text that can be shown now.
    pub text: String,
    /// The stop string that ended the text.
    pub stopped: Option<String>,
}

impl TextStream {
    /// An empty text. Without a tokenizer it stays empty.
    pub fn new(text: Option<Text>, stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self {
            text,
            special: false,
            keep_stop: false,
            stops,
            unsearched: 0,
            pushed: 0,
            tokens: Vec::new(),
            context: 0,
            read: 0,
            held: String::new(),
            settled: 0,
            whole: String::new(),
        }
    }

    /// The same including special tokens, and the stop string that ends the text, if requested.
    pub fn with(self, special: bool, keep_stop: bool) -> Self {
        Self { special, keep_stop, ..self }
    }

    /// The same without stop strings that end within this many first tokens.
    pub fn searched_after(self, tokens: usize) -> Self {
        Self { unsearched: tokens, ..self }
    }

    /// Adds a token.
    pub fn push(&mut self, token: u32) -> Grown {
        self.pushed += 1;
        let Some(text) = &self.text else { return Grown::default() };
        if text.skips(token, self.special) {
            return Grown::default();
        }
        self.tokens.push(token);
        let new = self.unread(text);
        // A replacement character at the end means that bytes of a character are still missing.
        // Without text the token cannot be the only context of the next one, which some decoders
        // would take for the first and strip of its space. Waiting is limited: no character has
        // more bytes than this, and waiting longer would decode ever more tokens again and again.
        let is_open = new.is_empty() || new.ends_with('\u{FFFD}');
        if is_open && self.tokens.len() - self.read < LONGEST_CHARACTER {
            return Grown::default();
        }
        self.held.push_str(&new);
        self.context = self.read;
        self.read = self.tokens.len();
        self.release()
    }

    /// Ends the text; returns what was held back.
    pub fn finish(&mut self) -> String {
        if let Some(text) = &self.text {
            let new = self.unread(text);
            self.held.push_str(&new);
            self.read = self.tokens.len();
        }
        let rest = std::mem::take(&mut self.held);
        self.whole.push_str(&rest);
        rest
    }

    /// The text of the tokens that have not been decoded, decoded with the tokens before them as
    /// context: without it a space could be missing.
    fn unread(&self, text: &Text) -> String {
        let decode = |tokens: &[u32]| text.decode_with(tokens, self.special);
        let known = decode(&self.tokens[self.context..self.read]);
        let all = decode(&self.tokens[self.context..]);
        match all.strip_prefix(known.as_str()) {
            Some(new) => new.to_owned(),
            // New bytes have changed the text before them, which has already been returned.
            None => decode(&self.tokens[self.read..]),
        }
    }

    /// All text returned so far.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    fn release(&mut self) -> Grown {
        if self.pushed <= self.unsearched {
            self.settled = self.held.len();
        }
        let ends_later = |stop: &String| {
            self.held.match_indices(stop.as_str()).map(|(at, _)| at).find(|at| at + stop.len() > self.settled)
        };
        let found = self.stops.iter().filter_map(|stop| Some((ends_later(stop)?, stop)));
        let first = found.min_by_key(|(at, _)| *at);
        let (shown, stopped) = match first {
            Some((at, stop)) => (at + if self.keep_stop { stop.len() } else { 0 }, Some(stop.clone())),
            None => (self.held.len() - self.longest_start_of_a_stop(), None),
        };
        self.settled = self.settled.saturating_sub(shown);
        let rest = self.held.split_off(shown);
        let text = std::mem::replace(&mut self.held, if stopped.is_some() { String::new() } else { rest });
        self.whole.push_str(&text);
        Grown { text, stopped }
    }

    /// Number of bytes at the end of the held text with which a stop string could start.
    fn longest_start_of_a_stop(&self) -> usize {
        let starts = |stop: &String| {
            let ends = stop.char_indices().map(|(at, _)| at).filter(|at| *at > 0);
            ends.filter(|at| self.held.ends_with(&stop[..*at])).max()
        };
        self.stops.iter().filter_map(starts).max().unwrap_or_default()
    }
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

    /// Feeds the tokens of `text`; returns the text after each of them, and the stop string.
    fn feed(text: &str, stops: &[&str]) -> (Vec<String>, Option<String>) {
        let tiny = tiny();
        let tokens = tiny.encode(text).expect("it encodes");
        let mut stream = TextStream::new(Some(tiny), stops.iter().map(ToString::to_string).collect());
        let mut pieces = Vec::new();
        for token in tokens {
            let grown = stream.push(token);
            pieces.push(grown.text);
            if grown.stopped.is_some() {
                return (pieces, grown.stopped);
            }
        }
        pieces.push(stream.finish());
        assert_eq!(pieces.concat(), stream.whole());
        (pieces, None)
    }

    #[test]
    fn pieces_are_whole_characters_and_add_up() {
        let text = "fn main() { // 日本語 — ünïcödé 🦀🦀 }";
        let (pieces, stopped) = feed(text, &[]);
        assert_eq!((pieces.concat().as_str(), stopped), (text, None));
        assert!(pieces.iter().all(|piece| !piece.contains('\u{FFFD}')));
        assert!(pieces.len() > 20, "byte tokens make many pieces: {pieces:?}");
    }

    #[test]
    fn no_stop_string_ends_within_the_first_tokens() {
        let check = |stops: &[&str], unsearched: usize, expected: &str| {
            let tiny = tiny();
            let tokens = tiny.encode("abcabcabc").expect("it encodes");
            let each: Vec<String> = tokens.iter().map(|token| tiny.decode(&[*token])).collect();
            let stops = stops.iter().map(ToString::to_string).collect();
            let mut stream = TextStream::new(Some(tiny), stops).searched_after(unsearched);
            let ended = tokens.iter().any(|token| stream.push(*token).stopped.is_some());
            if !ended {
                stream.finish();
            }
            assert_eq!(stream.whole(), expected, "{each:?}");
        };
        let tokens = tiny().encode("abcabcabc").expect("it encodes").len();
        check(&["b"], 0, "a");
        check(&["b"], tokens, "abcabcabc");
        // The last token has the last character.
        check(&["c"], tokens - 1, "abcabcab");
        // It may begin before, and a shorter one that has ended is none.
        check(&["bc", "b"], tokens - 1, "abcabca");
    }

    #[test]
    fn a_space_after_a_token_without_text_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let word = |id: usize, text: &str| format!("\"{text}\": {id}");
        let words = ["<unk>", "</s>", "\u{2581}one", "\u{2581}two", "\u{2581}", "."];
        let words = words.iter().enumerate().map(|(id, text)| word(id, text)).collect::<Vec<_>>().join(", ");
        let metaspace = r#"{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}"#;
        // Llama 2's.
        let strip = r#"{"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}"#;
        for decoder in [metaspace, strip] {
            let tokenizer = format!(
                r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
                    "post_processor": null, "decoder": {decoder},
                    "added_tokens": [{{"id": 1, "content": "</s>", "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false, "special": true}}],
                    "model": {{"type": "WordLevel", "vocab": {{{words}}}, "unk_token": "<unk>"}}}}"#
            );
            std::fs::write(folder.path().join("config.json"), "{}").expect("a file");
            std::fs::write(folder.path().join("tokenizer.json"), tokenizer).expect("a file");
            let folder = Folder::open(folder.path()).expect("a folder");
            let text = Text::open(&folder).expect("a tokenizer").expect("there is one");
            for tokens in [&[2, 1, 3, 5][..], &[2, 99, 3, 1, 1, 3], &[4, 3, 1, 2], &[1, 2, 3]] {
                let mut stream = TextStream::new(Some(text.clone()), Vec::new());
                let shown: String = tokens.iter().map(|token| stream.push(*token).text).collect();
                assert_eq!(shown + &stream.finish(), text.decode(tokens), "{tokens:?} {decoder}");
            }
            let endless = std::iter::repeat_n(1, 64).chain([3]);
            let mut stream = TextStream::new(Some(text), Vec::new());
            let shown: String = [2].into_iter().chain(endless).map(|token| stream.push(token).text).collect();
            assert_eq!(shown, "one two");
        }
    }

    #[test]
    fn bytes_that_never_become_a_character_do_not_hold_back_the_text() {
        let tiny = tiny();
        let half = tiny.encode("日").expect("it encodes")[1..3].to_vec();
        let hello = tiny.encode("日hello").expect("it encodes")[3..].to_vec();
        let mut stream = TextStream::new(Some(tiny), Vec::new());
        let shown: String = half.iter().cycle().take(64).map(|token| stream.push(*token).text).collect();
        assert!(shown.chars().filter(|character| *character == '\u{FFFD}').count() > 16, "{shown:?}");
        assert!(stream.tokens.len() - stream.context <= 2 * LONGEST_CHARACTER);
        let shown: String = hello.iter().map(|token| stream.push(*token).text).collect();
        assert!((shown + &stream.finish()).ends_with("hello"));
    }

    #[test]
    fn a_stop_string_ends_the_text_before_it_wherever_tokens_split_it() {
        for (stop, expected) in [
            ("rn x", "let y; retu"),
            ("; ", "let y"),
            ("🦀", "let y; return x + "),
            ("zzz", "let y; return x + 🦀 done"),
        ] {
            let (pieces, stopped) = feed("let y; return x + 🦀 done", &["never", stop]);
            assert_eq!(pieces.concat(), expected, "{stop}");
            assert_eq!(stopped.is_some(), stop != "zzz");
        }
    }

    #[test]
    fn text_that_may_become_a_stop_string_is_held_back() {
        let tiny = tiny();
        let tokens = tiny.encode("a }\n}\nb").expect("it encodes");
        let mut stream = TextStream::new(Some(tiny), vec!["}\n}\n}".into()]);
        let mut shown = String::new();
        for token in tokens {
            shown.push_str(&stream.push(token).text);
            assert!(!shown.contains('}') || shown.contains('b'), "{shown:?}");
        }
        shown.push_str(&stream.finish());
        assert_eq!(shown, "a }\n}\nb");
    }
}
