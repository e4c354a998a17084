//! The files to check: files named by the user, and files in named folders.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};

use super::FileResult;

/// A file to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub path: PathBuf,
    /// Whether it was found in a folder, so that it need not contain a launch.
    pub found: bool,
}

/// Extensions of the files that are checked in a folder, in addition to Dockerfiles.
const ENDINGS: &[&str] =
    &["sh", "bash", "slurm", "sbatch", "toml", "yaml", "yml", "py", "service", "container", "dockerfile"];
/// Prefixes of the names of image recipes.
const RECIPES: &[&str] = &["Dockerfile", "Containerfile"];
/// Folders with third-party contents, which are skipped.
const FOREIGN: &[&str] = &["node_modules", "target", "venv", "__pycache__"];
/// Maximum number of files to check.
const MOST_FILES: usize = 10_000;
/// Maximum depth of folders.
const DEEPEST: usize = 32;

/// The file itself, or the files of a folder in the order of names. Links and hidden folders are
/// not followed.
///
/// # Errors
/// When a folder cannot be read, or contains too many files.
pub(super) fn in_path(named: &Path) -> anyhow::Result<Vec<File>> {
    if !named.is_dir() {
        return Ok(vec![File { path: named.to_owned(), found: false }]);
    }
    let mut found = Vec::new();
    search(named, 0, &mut found)?;
    Ok(found.into_iter().map(|path| File { path, found: true }).collect())
}

/// Errors for folders in which nothing was checked.
pub(super) fn without_launch<'n>(
    named: &'n [PathBuf],
    all: &[FileResult],
    allowed: bool,
) -> Vec<(&'n Path, anyhow::Error)> {
    let settings = |folder: &Path| {
        let is_in = |done: &&FileResult| Path::new(done.checked.source.name()).starts_with(folder);
        all.iter().filter(is_in).any(|done| !done.checked.passed_over)
    };
    let empty = named.iter().filter(|path| path.is_dir() && !allowed && !settings(path));
    let complaint = |folder: &PathBuf| {
        anyhow!(
            "no launch in {}: none of its Dockerfiles and .{} files starts SGLang, slime or vLLM (notebooks are not \
             read); name the file, or pass --allow-no-launch",
            folder.display(),
            ENDINGS.join(", .")
        )
    };
    empty.map(|folder| (folder.as_path(), complaint(folder))).collect()
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let unreadable = || format!("cannot read {}", folder.display());
    let mut entries =
        fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).with_context(unreadable)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().with_context(unreadable)?;
        if kind.is_dir() && !name.starts_with('.') && !FOREIGN.contains(&name.as_ref()) && depth < DEEPEST {
            search(&path, depth + 1, found)?;
        }
        let has_ending = path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
        // Recipes are named after what they build too: Dockerfile.cuda.
        let stem = name.split('.').next().unwrap_or_default();
        if kind.is_file() && (has_ending || RECIPES.contains(&stem)) {
            if found.len() == MOST_FILES {
                bail!("{} contains more than {MOST_FILES} files to check: name a subfolder", folder.display());
            }
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_searched_in_the_order_of_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let named =
            ["b/run.sh", "a.yaml", "b/notes.txt", ".git/x.sh", "target/y.sh", "c.toml", "b/d/e.yml", "b/README.md"];
        for name in named.into_iter().chain(["Dockerfile", "f/Dockerfile.rocm", "f/g.py", "f/h.service"]) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        let found = in_path(folder.path()).expect("it is read");
        let names: Vec<_> = found.iter().map(|file| file.path.strip_prefix(folder.path()).expect("inside")).collect();
        let expected =
            ["Dockerfile", "a.yaml", "b/d/e.yml", "b/run.sh", "c.toml", "f/Dockerfile.rocm", "f/g.py", "f/h.service"];
        assert_eq!(names, expected.map(Path::new));
        assert!(found.iter().all(|file| file.found));
        assert_eq!(in_path(Path::new("none")).expect("told later"), [File { path: "none".into(), found: false }]);
    }
}
