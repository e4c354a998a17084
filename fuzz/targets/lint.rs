//! The linter end to end: a launch text, the config.json of target and draft, rules, fixes, and the
//! fixed text.
#![no_main]

use fuzz::{
    lint::{Conditions, facts, look_and_mend},
    sections::sections,
    text,
};
use libfuzzer_sys::fuzz_target;
use schemas::text::Source;

/// Maximum length of an input in bytes: longer ones only make each run slower.
const LONGEST: usize = 16 << 10;

fuzz_target!(|input: &[u8]| {
    if input.len() > LONGEST {
        return;
    }
    let mut launch = "";
    let mut conditions = Conditions::default();
    for (name, section) in sections(input) {
        let Some(section) = text(section) else { return };
        match name {
            b"" => launch = section,
            b"target" => conditions.target = facts(section),
            b"draft" => conditions.draft = facts(section),
            b"version" => conditions.version = section.trim().parse().ok(),
            b"memory" => conditions.gpu_memory = section.trim().parse().ok(),
            b"concurrency" => conditions.expected_concurrency = section.trim().parse().ok(),
            _ => {}
        }
    }
    look_and_mend(&Source::new("x", launch), &conditions);
});
