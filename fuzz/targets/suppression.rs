//! Comments that suppress findings, in every syntax.
#![no_main]

use fuzz::{
    check_findings,
    lint::{Conditions, look},
    text,
};
use libfuzzer_sys::fuzz_target;
use lint::{rules::Selection, suppression};
use schemas::{diagnostic::fix, text::Source};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    if !text.contains("spectune:") {
        return;
    }
    for name in ["x.sh", "x.toml", "x.yaml"] {
        let source = Source::new(name, text);
        // Without findings, every comment suppresses nothing.
        let idle = suppression::apply(&source, Vec::new(), &Selection::default());
        check_findings(&source, &idle);
        let fixed = Source::new(name, fix::apply(&source, &idle, true).text);
        check_findings(&fixed, &suppression::apply(&fixed, Vec::new(), &Selection::default()));
        check_findings(&source, &look(&source, &Conditions::default()));
    }
});
