//! The local cache of the Hugging Face hub, as huggingface_hub lays it out.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use crate::names::{is_id, is_revision};

/// Maximum length of the name of a commit, or of a key, in bytes.
const LONGEST_TEXT: u64 = 4096;

/// The folder with the downloaded repositories.
#[derive(Clone, Debug)]
pub struct HubCache {
    root: PathBuf,
}

impl HubCache {
    /// The cache that huggingface_hub would use: `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else
    /// `hub` in `HF_HOME`, else in `huggingface` in `XDG_CACHE_HOME`, else in
    /// `~/.cache/huggingface`. `None` if no home folder is known.
    pub fn from_environment() -> Option<Self> {
        Self::located(variable)
    }

    fn located(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let named = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        Some(Self { root: named.or_else(|| Some(home(variable)?.join("hub")))? })
    }

    /// The cache in this folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a model's files at a revision (a branch, a tag or a commit), if it was
    /// downloaded and has a config.
    pub fn find(&self, id: &str, revision: &str) -> Option<PathBuf> {
        if !is_id(id) || !is_revision(revision) {
            return None;
        }
        let repository = self.root.join(format!("models--{}", id.replace('/', "--")));
        let commit = short_text(&repository.join("refs").join(revision));
        let commit = commit.as_deref().map_or(revision, str::trim);
        let snapshot = |commit: &str| Some(repository.join("snapshots").join(commit)).filter(|path| has_config(path));
        is_revision(commit).then(|| snapshot(commit)).flatten()
    }
}

/// An environment variable, if it is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder of huggingface_hub's own files.
pub(crate) fn home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from);
    path("HF_HOME").or_else(|| {
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")))?;
        Some(caches.join("huggingface"))
    })
}

/// The text of a file that holds a name or a key; `None` if it cannot be read or is too long.
pub(crate) fn short_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let length = File::open(path).ok()?.take(LONGEST_TEXT + 1).read_to_string(&mut text).ok()?;
    (length as u64 <= LONGEST_TEXT).then_some(text)
}

fn has_config(path: &Path) -> bool {
    // A dangling link counts as a config too: the reader reports what is wrong with it.
    let config = path.join("config.json");
    config.is_file() || config.is_symlink()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        HubCache::located(find).map(|cache| cache.root)
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let everything = [("HF_HUB_CACHE", "/a"), ("HF_HOME", "/b"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/d")];
        for (variables, expected) in
            [(&everything[..], "/a"), (&everything[1..], "/b/hub"), (&everything[2..], "/c/huggingface/hub")]
        {
            assert_eq!(root(variables), Some(expected.into()));
        }
        assert_eq!(root(&everything[3..]), Some("/d/.cache/huggingface/hub".into()));
        assert_eq!(root(&[]), None);
    }

    #[test]
    fn a_model_is_found_by_branch_and_by_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = folder.path().join("models--org--name");
        let snapshot = repository.join("snapshots/abc123");
        fs::create_dir_all(&snapshot).expect("a folder");
        fs::create_dir_all(repository.join("refs")).expect("a folder");
        fs::write(repository.join("refs/main"), "abc123\n").expect("a file");
        let cache = HubCache::at(folder.path());
        assert_eq!(cache.find("org/name", "main"), None, "without a config it is no model");
        fs::write(snapshot.join("config.json"), "{}").expect("a file");
        assert_eq!(cache.find("org/name", "main"), Some(snapshot.clone()));
        assert_eq!(cache.find("org/name", "abc123"), Some(snapshot));
        for (id, revision) in [("org/name", "../x"), ("org/other", "main"), ("../name", "main"), ("org/name", "")] {
            assert_eq!(cache.find(id, revision), None, "{id} {revision}");
        }
    }
}
