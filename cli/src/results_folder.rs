//! The folder of results: its name, and that a sweep and a training run never share one, since both
//! write reports of the same names.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::bail;
use schemas::{paths::folder_of, quoting::quoted, training_record::RUN_FILE};
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

/// Refuses a folder without the journal of a sweep or of measured servers.
///
/// # Errors
/// When there is none: which folder is needed, and what this one looks like.
pub fn check_has_journal(folder: &Path) -> anyhow::Result<()> {
    if tuner::trials::journal::exists(folder) {
        return Ok(());
    }
    bail!(
        "{0} contains no sweep (no {1}): give a folder that `spectune sweep` or `spectune tune` wrote, as its --out named \
         it (default: a folder in results); {2}",
        folder.display(),
        tuner::trials::journal::FILE_NAME,
        looks_like(folder)
    );
}

/// What a folder without the results that a command needs looks like, in a clause.
pub fn looks_like(folder: &Path) -> String {
    let name = folder.display();
    let has = |file: &str| folder.join(file).exists();
    if folder.is_file() {
        return format!("{name} is a file, in the folder {}", folder_of(folder).display());
    }
    if !folder.is_dir() {
        return format!("there is no folder {name}");
    }
    if has("training.json") {
        return format!("it contains a training run: `spectune report {name}` alone reports it");
    }
    if contains_training(folder) {
        return "it contains a training run that has not ended: `spectune train … --resume` continues it, and writes its \
                report at the end"
            .into();
    }
    if tuner::trials::journal::exists(folder) {
        return "it contains a sweep".into();
    }
    let entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let mut sweeps: Vec<String> = entries
        .iter()
        .filter(|path| tuner::trials::journal::exists(path))
        .map(|path| path.display().to_string())
        .collect();
    sweeps.sort();
    if !sweeps.is_empty() {
        return format!("the sweeps are in folders in it: {}", sweeps.join(", "));
    }
    if has("report.html") {
        return "it contains a report, without the trials that it was written from".into();
    }
    if has("config.json") {
        return "it contains a model".into();
    }
    if entries.is_empty() { "it is empty".into() } else { "it contains no results".into() }
}

/// Whether a folder contains a training run, finished or not.
fn contains_training(folder: &Path) -> bool {
    folder.join(RUN_FILE).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "training")]
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
    #[test]
    fn a_folder_without_a_sweep_is_described() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("one");
        let refusal = || check_has_journal(&folder).expect_err("no sweep").to_string();
        assert!(refusal().contains("journal.jsonl") && refusal().contains("there is no folder"), "{}", refusal());
        fs::create_dir(&folder).expect("a folder");
        assert!(refusal().ends_with("; it is empty"), "{}", refusal());
        for (file, what) in [
            ("table.csv", "it contains no results"),
            ("config.json", "it contains a model"),
            ("report.html", "it contains a report"),
            ("inner/journal.jsonl", "one/inner"),
            ("run.json", "a training run that has not ended"),
            ("training.json", "it contains a training run: "),
        ] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, "{}").expect("a file");
            assert!(refusal().contains(what), "{file}: {}", refusal());
        }
        assert!(looks_like(&folder.join("table.csv")).contains("is a file, in the folder"));
        fs::write(folder.join("journal.jsonl"), "{}").expect("a file");
        check_has_journal(&folder).expect("a journal");
    }
}
