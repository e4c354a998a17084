//! A tuned file, and its export in every format.
#![no_main]

use fuzz::{check_findings, text};
use launch::{Options, parse};
use libfuzzer_sys::fuzz_target;
use schemas::{
    export::{Form, Tuning, export},
    text::Source,
    tuned::TunedFile,
};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    let source = Source::new("tuned.toml", text);
    let file = match TunedFile::read(&source) {
        Ok(file) => file,
        Err(finding) => return check_findings(&source, &[*finding]),
    };
    if let Ok(written) = file.text() {
        assert_eq!(TunedFile::read(&Source::new("tuned.toml", written)).ok().as_ref(), Some(&file));
    }
    let tuning = Tuning::from(&file);
    for form in Form::ALL {
        for batch in [None, Some(8)] {
            let Ok(exported) = export(&tuning, form, batch, None) else { continue };
            if form != Form::SglangAdaptive {
                assert_eq!(parse(&Source::new("x.sh", exported.text), &Options::default()).launches.len(), 1);
            }
        }
    }
});
