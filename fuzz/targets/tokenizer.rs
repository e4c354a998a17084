//! tokenizer.json and generation_config.json.
#![no_main]

use fuzz::text;
use libfuzzer_sys::fuzz_target;
use schemas::model::{GenerationConfig, TokenizerFacts};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    let _ = TokenizerFacts::parse(text);
    let _ = GenerationConfig::parse(text);
});
