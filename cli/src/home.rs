//! `~` where no shell expands it: in files, and in arguments such as `--out=~/results`.

use std::ffi::OsString;

use schemas::paths::with_home;

/// Options whose values are texts rather than paths.
const TEXTS: [&str; 2] = ["--prompt", "--stop"];

/// Replaces a leading `~` of a path.
///
/// # Errors
/// A message, if the home folder is unknown.
pub fn expand(path: &str) -> Result<String, String> {
    let home = std::env::var("HOME").ok().filter(|home| !home.is_empty());
    Ok(with_home(path, home.as_deref())?.unwrap_or_else(|| path.to_owned()))
}

/// The arguments with the home folder in place of `~`, for programs that start this one without a
/// shell and for `--name=~/…`, which shells leave as it is.
///
/// # Errors
/// As [`expand`].
pub fn in_arguments(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut expanded = Vec::new();
    let mut is_text = false;
    for argument in arguments {
        let word = argument.to_str().filter(|_| !is_text);
        is_text = word.is_some_and(|word| TEXTS.contains(&word));
        expanded.push(match word.map(|word| (word, word.split_once('='))) {
            Some((_, Some((name, value)))) if name.starts_with("--") && !TEXTS.contains(&name) => {
                format!("{name}={}", expand(value)?).into()
            }
            Some((word, _)) => expand(word)?.into(),
            None => argument,
        });
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_expanded_and_texts_are_not() {
        let home = std::env::var("HOME").expect("a home folder");
        let arguments =
            ["spectune", "generate", "--out=~/x", "~/a.toml", "--prompt", "~/b", "--prompt=~/c", "--stop", "~"];
        let found = in_arguments(arguments.iter().map(OsString::from)).expect("a home folder");
        let (out, file) = (format!("--out={home}/x"), format!("{home}/a.toml"));
        let expected = ["spectune", "generate", &out, &file, "--prompt", "~/b", "--prompt=~/c", "--stop", "~"];
        assert_eq!(found, expected.map(OsString::from));
    }
}
