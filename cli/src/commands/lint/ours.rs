//! Lints spectune's own files: sweep files and tuned files.

use std::path::Path;

use schemas::{diagnostic::Diagnostic, kind::FileKind, sweep::SweepFile, text::Source, tuned::TunedFile};
use tuner::sweep::folder_of;

use crate::sweep_inputs;

/// Findings in a sweep or tuned file; `None` if the text is neither.
pub(super) fn findings(source: &Source) -> Option<Vec<Diagnostic>> {
    let path = Path::new(source.name());
    let may_be = path.extension().is_some_and(|ending| ending == "toml") || source.name() == "<stdin>";
    let kind = FileKind::of(source.text()).filter(|_| may_be)?;
    Some(match kind {
        FileKind::Sweep => match SweepFile::read_all(source) {
            Ok(file) => sweep_inputs::findings(file, &folder_of(path), source),
            Err(findings) => findings,
        },
        FileKind::Tuned => TunedFile::read(source).err().map(|finding| *finding).into_iter().collect(),
    })
}
