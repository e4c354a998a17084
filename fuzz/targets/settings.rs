//! The settings file `spectune.toml`.
#![no_main]

use fuzz::{check_findings, text};
use libfuzzer_sys::fuzz_target;
use lint::rules::Selection;
use schemas::{settings::SettingsFile, text::Source};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    let source = Source::new("spectune.toml", text);
    match SettingsFile::read(&source, Selection::check) {
        Ok(file) => {
            // A value that is accepted here must not be refused later.
            assert!(Selection::new(&file.lint.select, &file.lint.ignore).is_ok());
            assert_eq!(file.lint.engine().is_some(), file.lint.engine.is_some());
            assert_eq!(file.lint.engine_version().is_some(), file.lint.engine_version.is_some());
        }
        Err(finding) => check_findings(&source, &[*finding]),
    }
});
