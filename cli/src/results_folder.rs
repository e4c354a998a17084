//! The folder of results: its name, and that a sweep and a training run never share one, since both
//! write reports of the same names.

use std::path::{Path, PathBuf};

use anyhow::bail;
use schemas::{quoting::quoted, training_record::RUN_FILE};
use tuner::{strategy::Shard, sweep::jobs::place};

/// The folder of results with this name, if no other is given.
pub fn named(name: &str) -> PathBuf {
    PathBuf::from("results").join(name)
}

/// The folder of results with this name; a shard has one of its own beside it.
pub fn folder_of_shard(name: &str, shard: Option<Shard>) -> PathBuf {
    let whole = named(name);
    shard.map_or(whole.clone(), |shard| place::folder(&whole, shard))
}

/// What results are named after: the file's name without its ending, or `otherwise`.
pub fn stem(file: &Path, otherwise: &str) -> String {
    file.file_stem().map_or_else(|| otherwise.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Refuses the folder of a training run for the results of a sweep.
///
/// # Errors
/// When the folder contains a training run. A sweep that is in the same folder already may be
/// continued.
pub fn check_for_sweep(out: &Path, resume: bool) -> anyhow::Result<()> {
    let continues = resume && tuner::trials::journal::exists(out);
    if contains_training(out) && !continues {
        bail!(
            "{0} contains a training run, whose report a sweep would overwrite: choose another folder with --out, or move \
             the training run away (mv {1} {1}-training)",
            out.display(),
            quoted(&out.display().to_string())
        );
    }
    Ok(())
}

/// Refuses the folder of a sweep for a training run.
///
/// # Errors
/// When the folder contains a sweep. A training run that is in the same folder already may be
/// continued.
#[cfg(feature = "training")]
pub fn check_for_training(out: &Path, resume: bool) -> anyhow::Result<()> {
    let continues = resume && contains_training(out);
    if tuner::trials::journal::exists(out) && !continues {
        bail!(
            "{0} contains a sweep, whose report a training run would overwrite: choose another folder with --out, or move \
             the sweep away (mv {1} {1}-sweep)",
            out.display(),
            quoted(&out.display().to_string())
        );
    }
    Ok(())
}

/// Whether a folder contains a training run, finished or not.
fn contains_training(folder: &Path) -> bool {
    folder.join(RUN_FILE).exists()
}

#[cfg(all(test, feature = "training"))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_sweep_and_a_training_run_never_share_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path();
        let allowed = |resume| (check_for_sweep(out, resume).is_ok(), check_for_training(out, resume).is_ok());
        assert_eq!((allowed(false), allowed(true)), ((true, true), (true, true)));
        fs::write(out.join("run.json"), "{}").expect("a file");
        assert_eq!((allowed(false), allowed(true)), ((false, true), (false, true)));
        // Both, from a time when they could share a folder: each may be finished.
        fs::write(out.join("journal.jsonl"), "{}").expect("a file");
        assert_eq!((allowed(false), allowed(true)), ((false, false), (true, true)));
        fs::remove_file(out.join("run.json")).expect("it is there");
        assert_eq!((allowed(false), allowed(true)), ((true, false), (true, false)));
        let words = check_for_training(out, false).expect_err("a sweep").to_string();
        assert!(words.contains("contains a sweep") && words.contains("--out"), "{words}");
    }
}
