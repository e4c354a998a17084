//! Words that belong to no flag: the model of `vllm serve MODEL`, and stray ones.

use schemas::{
    engines::Engine,
    finding::Finding,
    text::{Located, Span, shortened},
};

use super::{
    super::{Value, command::Field, placeholder::may_replace_value, problems},
    flag_names::{FlagNames, is_flag},
};

/// The word without a flag that `vllm serve` takes for the model.
pub(super) struct ModelWord {
    engine: Engine,
    /// Whether a word may be one.
    is_read: bool,
    /// Whether a second one is certainly none.
    is_alone: bool,
    /// Whether the model is given by its flag.
    is_by_flag: bool,
    /// Whether such a word was seen.
    is_seen: bool,
    /// Whether it is the word just before.
    pub is_before: bool,
}

impl ModelWord {
    /// `words` are those of the launch.
    pub fn new<'a, 'b: 'a>(mut words: impl Iterator<Item = &'a Field<'b>>, names: FlagNames) -> Self {
        let is_flag = |word: &Field<'_>| word.value.written().split('=').next() == Some("--model");
        Self {
            engine: names.engine,
            is_read: names.engine == Engine::Vllm && names.is_command_line,
            is_alone: names.is_after_serve,
            is_by_flag: words.any(is_flag),
            is_seen: false,
            is_before: false,
        }
    }

    /// The problem of a word without a flag, if it belongs to nothing. `complete` is the flag
    /// before it that has all its words, and `rest` are the words after it.
    pub fn look<'a, 'b: 'a>(
        &mut self,
        value: &Located<Value>,
        complete: &mut Option<String>,
        rest: impl Iterator<Item = &'a Field<'b>>,
    ) -> Option<Finding> {
        let Some(text) = value.value.known() else {
            self.is_before = false;
            // It may end with a flag that takes the next word.
            complete.take_if(|_| self.engine == Engine::Vllm);
            return None;
        };
        if text != "--" && self.takes(text) {
            return None;
        }
        // The first of several such words is enough.
        let complete = complete.take();
        if text == "--" || (self.engine == Engine::Vllm && starts_sentence(rest)) {
            return None;
        }
        match complete {
            Some(flag) => Some(stray(&flag, text, value.span)),
            None => self.second(text, value.span),
        }
    }

    /// Whether a word is the model. Where a flag gives the model, old versions take another one.
    fn takes(&mut self, text: &str) -> bool {
        let is_switched = ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word));
        let takes = self.is_read && !self.is_seen && !is_switched;
        if takes {
            self.is_seen = true;
            self.is_before = !self.is_by_flag && !may_replace_value(text);
        }
        takes
    }

    /// Reports a word that follows the model.
    fn second(&mut self, text: &str, span: Span) -> Option<Finding> {
        let message = format!("`{}` does not belong to a flag: vLLM takes one model", shortened(text));
        let finding = || problems::STRAY_VALUE.at(span, message, "stray word").by_words();
        (std::mem::take(&mut self.is_before) && self.is_alone).then(finding)
    }
}

/// Whether at least two more words without a flag follow: `other arguments of the server`.
fn starts_sentence<'a, 'b: 'a>(words: impl Iterator<Item = &'a Field<'b>>) -> bool {
    let is_plain = |word: &&Field<'_>| word.value.known().is_some_and(|text| !is_flag(text));
    words.take(2).filter(is_plain).count() == 2
}

fn stray(flag: &str, word: &str, span: Span) -> Finding {
    let shown = shortened(word);
    problems::STRAY_VALUE
        .at(span, format!("`{shown}` does not belong to a flag: `{flag}` takes no more values"), "stray word")
        .by_words()
}
