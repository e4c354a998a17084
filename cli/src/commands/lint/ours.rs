//! Lints spectune's own files: sweep files, training files and tuned files.

use std::path::Path;

use schemas::{
    diagnostic::Diagnostic, kind::FileKind, sweep::SweepFile, text::Source, train::TrainFile, tuned::TunedFile,
};

/// Findings in a sweep, training or tuned file; `None` if the text is none of them.
pub(super) fn findings(source: &Source) -> Option<Vec<Diagnostic>> {
    let path = Path::new(source.name());
    let may_be = path.extension().is_some_and(|ending| ending == "toml") || source.name() == "<stdin>";
    let kind = FileKind::from_text(source.text()).filter(|_| may_be)?;
    Some(match kind {
        FileKind::Sweep => match SweepFile::read_all(source) {
            Ok(file) => inputs(file, path, source),
            Err(findings) => findings,
        },
        FileKind::Train => TrainFile::read_all(source).err().unwrap_or_default(),
        FileKind::Tuned => TunedFile::read(source).err().map(|finding| *finding).into_iter().collect(),
    })
}

/// What is wrong with the inputs that a sweep file names.
#[cfg(feature = "engine")]
fn inputs(file: SweepFile, path: &Path, source: &Source) -> Vec<Diagnostic> {
    crate::sweep_inputs::findings(file, &schemas::paths::folder_of(path), source)
}

/// Models and prompts are not read: this build has no engine.
#[cfg(not(feature = "engine"))]
fn inputs(_file: SweepFile, path: &Path, _source: &Source) -> Vec<Diagnostic> {
    crate::terminal::note(&format!(
        "note: {}: only the form of the file was checked; models and prompts are checked by a build with the feature \
         `engine`",
        path.display()
    ));
    Vec::new()
}
