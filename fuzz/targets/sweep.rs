//! A sweep file.
#![no_main]

use fuzz::{check_findings, text};
use libfuzzer_sys::fuzz_target;
use schemas::{sweep::SweepFile, text::Source};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    let source = Source::new("sweep.toml", text);
    if let Err(finding) = SweepFile::read(&source) {
        check_findings(&source, &[*finding]);
    }
});
