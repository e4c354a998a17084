//! The bytes of a safetensors file, or the index of several.
#![no_main]

use fuzz::text;
use libfuzzer_sys::fuzz_target;
use schemas::model::{ModelFacts, TensorHeaders, TensorIndex, header_length};

fuzz_target!(|input: &[u8]| {
    if let Some(first) = input.first_chunk::<8>() {
        let _ = header_length(*first, input.len() as u64);
        let _ = header_length(*first, u64::MAX);
    }
    let Some(text) = text(input) else { return };
    let mut facts = ModelFacts::default();
    if let Ok(index) = TensorIndex::parse(text) {
        let _ = index.files();
        facts.index = Some(index);
        look(&facts);
    }
    let mut headers = TensorHeaders::default();
    if headers.add_header(text).is_ok() {
        // A second file with the same names.
        let _ = headers.add_header(text);
        facts.tensors = Some(headers);
        look(&facts);
    }
});

fn look(facts: &ModelFacts) {
    let _ = (facts.loaded_bytes("bfloat16"), facts.tensor_names().map(Iterator::count), facts.has_mtp_tensors());
    let _ = (facts.dropped_mtp_layers(), facts.draft_kind());
}
