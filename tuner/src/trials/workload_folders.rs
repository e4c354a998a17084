//! The folders of a sweep of several prompt files: one for each, with a journal of its own, inside
//! the sweep's folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::trials::journal;

/// The names of the workloads in the folder of a sweep, in the order in which they were measured;
/// empty if the folder has a journal of its own, or holds no journals.
pub fn names(folder: &Path) -> Vec<String> {
    if journal::exists(folder) {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = entries
        .filter(|entry| journal::exists(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    // A journal does not contain the list of prompt files, but they are measured one after another.
    in_order(names.into_iter().map(|name| (first_trial(&folder.join(&name)), name)).collect())
}

/// When the first trial of a journal finished, in seconds since 1970; `None` without a trial.
fn first_trial(folder: &Path) -> Option<u64> {
    let records = journal::read(folder).ok()?.records;
    records.iter().map(|record| record.finished_at).min()
}

/// Sorts names by time, the ones without a time last, by name.
fn in_order(mut names: Vec<(Option<u64>, String)>) -> Vec<String> {
    names.sort_by_key(|(time, name)| (time.is_none(), *time, name.clone()));
    names.into_iter().map(|(_, name)| name).collect()
}

/// The folders with journals: for each folder itself, or those of its workloads.
pub fn expanded(folders: &[PathBuf]) -> Vec<PathBuf> {
    let of = |folder: &PathBuf| match names(folder) {
        names if names.is_empty() => vec![folder.clone()],
        names => names.into_iter().map(|name| folder.join(name)).collect(),
    };
    folders.iter().flat_map(of).collect()
}

/// For each workload of some folders, its name and the folders that have it; `None` unless every
/// folder holds workloads.
pub fn by_name(folders: &[PathBuf]) -> Option<Vec<(String, Vec<PathBuf>)>> {
    let each: Vec<Vec<String>> = folders.iter().map(|folder| names(folder)).collect();
    if each.iter().any(Vec::is_empty) {
        return None;
    }
    let mut all: Vec<&String> = Vec::new();
    for name in each.iter().flatten() {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    let having = |name: &String| {
        let those = folders.iter().zip(&each).filter(|(_, names)| names.contains(name));
        those.map(|(folder, _)| folder.join(name)).collect()
    };
    Some(all.into_iter().map(|name| (name.clone(), having(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_in_the_order_of_their_first_trials() {
        let names = [(None, "b"), (Some(20), "chat"), (Some(10), "demo"), (None, "a"), (Some(20), "code")];
        let found = in_order(names.into_iter().map(|(time, name)| (time, name.to_owned())).collect());
        assert_eq!(found, ["demo", "chat", "code", "a", "b"]);
    }

    #[test]
    fn a_folder_of_workloads_stands_for_their_folders() {
        let parent = tempfile::tempdir().expect("a folder");
        let journal = |path: &str| {
            let folder = parent.path().join(path);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(journal::FILE_NAME), "").expect("a file");
        };
        ["one", "a/chat", "a/code", "b/code"].into_iter().for_each(journal);
        let [one, a, b] = ["one", "a", "b"].map(|name| parent.path().join(name));
        assert_eq!(expanded(&[one.clone(), a.clone()]), [one.clone(), a.join("chat"), a.join("code")]);
        assert_eq!(by_name(&[a.clone(), one]), None);
        let by_name = by_name(&[a.clone(), b.clone()]).expect("workloads");
        assert_eq!(
            by_name,
            [("chat".into(), vec![a.join("chat")]), ("code".into(), vec![a.join("code"), b.join("code")])]
        );
    }
}
