//! A launch in any syntax: it is read without a panic, all spans are inside the text, and the
//! printed launch reads back.
#![no_main]

use fuzz::{check_findings, lint::check_places, text};
use libfuzzer_sys::fuzz_target;
use launch::{Options, parse};
use lint::{published_models, report::report};
use schemas::{engines::Engine, text::Source};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    for (name, engine) in [
        ("x.sh", None),
        ("x.toml", None),
        ("x.yaml", None),
        ("x.md", Some(Engine::Vllm)),
        ("x.py", None),
        ("Dockerfile", None),
        ("x.service", None),
        ("x.rst", None),
        ("x", Some(Engine::Sglang)),
    ] {
        let source = Source::new(name, text);
        let parsed = parse(&source, &Options { engine, ..Options::default() });
        for launch in &parsed.launches {
            check_places(&source, launch);
            let _ = launch.to_string();
        }
        check_findings(&source, &report(&source, parsed, published_models::facts_of, &Default::default()).findings);
    }
});
