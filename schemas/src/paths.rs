//! Paths as texts: how they are shown, and what `~` means.

use std::path::{Component, Path, PathBuf};

/// A path without `folder/..`, as a reader would write it; links are not followed.
pub fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        let goes_up = matches!(tidy.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::ParentDir if goes_up => {
                tidy.pop();
            }
            Component::CurDir => {}
            other => tidy.push(other),
        }
    }
    if tidy.as_os_str().is_empty() { PathBuf::from(".") } else { tidy }
}

/// The folder that the relative paths of a file refer to.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The path with the home folder in place of a leading `~`, as a shell would read it; `None` if it
/// has none. The folders of other users (`~name`) are left to the shell.
///
/// # Errors
/// A message, if it needs the home folder and that is unknown.
pub fn with_home(path: &str, home: Option<&str>) -> Result<Option<String>, String> {
    let Some(rest) = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Ok(None);
    };
    match home {
        Some(home) => Ok(Some(format!("{}{rest}", home.trim_end_matches('/')))),
        None => Err(format!("{path}: ~ is the home folder, but HOME is not set: write the whole path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_without_detours() {
        for (path, expected) in [
            ("sweeps/../models/target", "models/target"),
            ("./a/./b", "a/b"),
            ("./../../models", "../../models"),
            ("../../x", "../../x"),
            ("/a/../..", "/.."),
            ("a/..", "."),
        ] {
            assert_eq!(tidy(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn a_leading_tilde_is_the_home_folder() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(with_home(path, Some("/home/me")), Ok(expected.map(str::to_owned)), "{path}");
        };
        check("~/models/x", Some("/home/me/models/x"));
        check("~", Some("/home/me"));
        check("~other/x", None);
        check("a/~/b", None);
        check("./~", None);
        assert!(with_home("~/x", None).is_err_and(|words| words.contains("HOME is not set")));
    }
}
