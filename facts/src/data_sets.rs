//! Data sets in the local cache of the Hugging Face hub.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{HubCache, short_text},
    names::{is_id, is_revision},
};

/// Endings of the files that can be read as prompts.
const READABLE: [&str; 5] = ["json", "jsonl", "ndjson", "csv", "tsv"];
/// Files of data sets that describe them.
const DESCRIPTIONS: [&str; 4] = ["dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"];
/// Maximum number of files of a data set that are listed, and maximum depth of its folders.
const MOST: usize = 10_000;
const DEEPEST: usize = 8;

/// A data set, or a file of it, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// Its id on the hub.
    pub id: String,
    /// The folder with its files.
    pub folder: PathBuf,
    /// The files that can be read, relative to the folder; the one to read first. Training splits
    /// come first, test splits last.
    pub readable: Vec<PathBuf>,
    /// Its Parquet files, relative to the folder.
    pub parquet: Vec<PathBuf>,
}

impl HubCache {
    /// A data set by a name of the form `org/name` or `org/name/path/of/file`, if it was
    /// downloaded. With a path, only that file is listed, if it exists.
    pub fn data_set(&self, name: &str) -> Option<DataSet> {
        let mut parts = name.splitn(3, '/');
        let id = format!("{}/{}", parts.next()?, parts.next()?);
        let path = parts.next();
        if !is_id(&id) || path.is_some_and(|path| path.split('/').any(|part| part.is_empty() || part == "..")) {
            return None;
        }
        let repository = self.root().join(format!("datasets--{}", id.replace('/', "--")));
        let commit = short_text(&repository.join("refs/main"))?;
        let commit = commit.trim();
        let folder =
            Some(repository.join("snapshots").join(commit)).filter(|path| is_revision(commit) && path.is_dir())?;
        let mut files = Vec::new();
        match path {
            Some(path) if folder.join(path).is_file() => files.push(PathBuf::from(path)),
            Some(_) => {}
            None => list(&folder, Path::new(""), 0, &mut files),
        }
        let ending = |path: &Path| path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let is = |path: &Path, known: &[&str]| ending(path).is_some_and(|ending| known.contains(&ending.as_str()));
        let describes =
            |path: &Path| path.file_name().is_some_and(|name| DESCRIPTIONS.iter().any(|known| name == *known));
        let named = path.is_some();
        let parquet: Vec<PathBuf> = files.extract_if(.., |path| is(path, &["parquet"])).collect();
        files.retain(|path| named || is(path, &READABLE) && !describes(path));
        files.sort_by_key(|path| (order(path), path.clone()));
        Some(DataSet { id, folder, readable: files, parquet })
    }
}

/// Training splits first, test splits last.
fn order(path: &Path) -> usize {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["train"]) {
        0
    } else if has(&["test", "valid", "eval", "dev"]) {
        2
    } else {
        1
    }
}

fn list(root: &Path, inside: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root.join(inside)) else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).take(MOST).collect();
    names.sort();
    for name in names {
        let (path, hidden) = (inside.join(&name), name.to_string_lossy().starts_with('.'));
        // Files of a snapshot are links to blobs.
        let full = root.join(&path);
        if full.is_dir() && !hidden && depth < DEEPEST {
            list(root, &path, depth + 1, files);
        } else if full.is_file() && !hidden && files.len() < MOST {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_lists_what_can_be_read_training_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = folder.path().join("datasets--org--set");
        let snapshot = repository.join("snapshots/abc");
        fs::create_dir_all(repository.join("refs")).expect("a folder");
        fs::write(repository.join("refs/main"), "abc\n").expect("a file");
        for name in ["README.md", "dataset_infos.json", "data/test.jsonl", "data/train.jsonl", "all.csv", "x/y.parquet"]
        {
            let path = snapshot.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        let cache = HubCache::at(folder.path());
        let found = cache.data_set("org/set").expect("it is there");
        assert_eq!(found.readable, ["data/train.jsonl", "all.csv", "data/test.jsonl"].map(PathBuf::from));
        assert_eq!((found.folder, found.parquet), (snapshot, vec![PathBuf::from("x/y.parquet")]));
        let named = cache.data_set("org/set/data/test.jsonl").expect("it is there");
        assert_eq!(named.readable, [PathBuf::from("data/test.jsonl")]);
        assert!(cache.data_set("org/set/none.json").expect("the set is there").readable.is_empty());
        for name in ["org/other", "set", "org/set/../../x", "../org/set", ""] {
            assert_eq!(cache.data_set(name), None, "{name}");
        }
    }
}
