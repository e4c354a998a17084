//! Checks of the repository itself: its pages and their links, generated pages, dependencies and
//! their licences, and phrases that are not used.
//!
//! Run by the crate `cli`: `cargo test -p cli --test repository`.

#[path = "repository/book.rs"]
mod book;
#[path = "repository/commands.rs"]
mod commands;
#[path = "repository/comments.rs"]
mod comments;
#[path = "repository/data_files.rs"]
mod data_files;
#[path = "repository/dependencies.rs"]
mod dependencies;
#[path = "repository/licences.rs"]
mod licences;
#[path = "repository/links.rs"]
mod links;
#[path = "repository/vocabulary.rs"]
mod vocabulary;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The variable that regenerates pages.
const UPDATE: &str = "SPECTUNE_UPDATE";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// All files under a folder of the repository with this extension, sorted, as paths from the root.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "results" {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path.strip_prefix(&root).expect("below the root").to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares a generated text with its file, or writes it if `SPECTUNE_UPDATE` is set.
#[track_caller]
fn check_generated(path: &str, text: &str) {
    let path = Path::new(path);
    if std::env::var_os(UPDATE).is_some() {
        fs::write(root().join(path), text).expect("the page can be written");
    }
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(found == text, "{} is stale: run SPECTUNE_UPDATE=1 cargo test -p cli --test repository", path.display());
}

/// The lines of a Markdown text outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}
