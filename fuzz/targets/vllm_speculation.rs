//! vLLM's speculative configuration as JSON: the input is the value of `--speculative-config`.
#![no_main]

use fuzz::{
    lint::{Conditions, look_and_mend},
    text,
};
use libfuzzer_sys::fuzz_target;
use launch::{Options, parse};
use schemas::{quoting::quoted, text::Source};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    // As a script, so that a Markdown fence in the value is part of it.
    let line = format!("#!/bin/sh\nvllm serve a --speculative-config={}", quoted(text));
    let source = Source::new("x.sh", line);
    for launch in parse(&source, &Options::default()).launches {
        let value = launch.argument("speculative-config").and_then(|argument| argument.values.first());
        // Any text that is quoted for a shell must read back.
        assert_eq!(value.and_then(|value| value.value.known()), Some(text));
        let _ = launch.vllm_speculation();
    }
    look_and_mend(&source, &Conditions::default());
});
