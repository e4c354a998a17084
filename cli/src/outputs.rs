//! Output files: checked before the work, written after it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use tuner::files::{replace, traces};

use crate::terminal;

/// A file of the command line, with the flag that names it.
pub type NamedFile<'a> = (&'static str, &'a Path);

/// Checks that no output is an input or another output, which it would overwrite.
///
/// # Errors
/// With both flags, when one is.
pub fn check_distinct(outputs: &[NamedFile<'_>], inputs: &[NamedFile<'_>]) -> anyhow::Result<()> {
    for (at, (flag, path)) in outputs.iter().enumerate() {
        let Some(own) = identity(path) else { continue };
        let mut others = inputs.iter().chain(&outputs[..at]);
        if let Some((other, _)) = others.find(|(_, other)| identity(other).as_ref() == Some(&own)) {
            bail!(
                "{flag} {} is also the file of {other}, which would be overwritten: name another file",
                path.display()
            );
        }
    }
    Ok(())
}

/// Checks that outputs can be written, without touching older ones.
///
/// # Errors
/// With the path, when a folder is missing or cannot be written, or the name is that of a folder.
pub fn check_writable(outputs: &[NamedFile<'_>]) -> anyhow::Result<()> {
    outputs.iter().try_for_each(|(_, path)| Ok(traces::check_place(path)?))
}

/// Writes a file atomically, and says so once it is written. `what` is added to the message.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, text: &str, what: &str) -> anyhow::Result<()> {
    replace(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    terminal::note(&format!("written: {}{what}", path.display()));
    Ok(())
}

/// The file that a path names, equal for all of its names; `None` for devices, pipes and folders,
/// and where the folder is missing.
fn identity(path: &Path) -> Option<PathBuf> {
    if let Ok(found) = fs::metadata(path) {
        return if found.is_file() { fs::canonicalize(path).ok() } else { None };
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_under_any_name_of_an_input_or_output_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("input"), "old").expect("a file");
        fs::create_dir(at("sub")).expect("a folder");
        let inputs = at("input");
        let refused = |first: &Path, second: &Path, other: &str| {
            let outputs = [("--one", first), ("--two", second)];
            let found = check_distinct(&outputs, &[("--in", inputs.as_path())]).expect_err(other).to_string();
            assert!(found.contains(other) && found.contains("name another file"), "{found}");
        };
        refused(&at("new"), &at("sub/../input"), "file of --in");
        refused(&at("sub/../new"), &at("new"), "file of --one");
        let [new, none, null] = [at("new"), at("none/input"), PathBuf::from("/dev/null")];
        let outputs: [NamedFile<'_>; 3] =
            [("--one", new.as_path()), ("--two", none.as_path()), ("--three", null.as_path())];
        check_distinct(&outputs, &[("--in", inputs.as_path()), ("--other", null.as_path())]).expect("all differ");
    }

    #[test]
    fn outputs_are_checked_without_touching_them_and_then_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "old").expect("a file");
        check_writable(&[("--one", at("old").as_path()), ("--two", at("new").as_path())]).expect("they can be");
        assert_eq!(fs::read_to_string(at("old")).expect("it is there"), "old");
        for wrong in [folder.path().to_owned(), at("none/new")] {
            let found = check_writable(&[("--one", wrong.as_path())]).expect_err("it cannot be").to_string();
            assert!(found.contains("cannot write"), "{found}");
        }
        write(&at("new"), "text", "").expect("it is written");
        assert_eq!(fs::read_to_string(at("new")).expect("it is there"), "text");
    }
}
