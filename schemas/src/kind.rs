//! Detects which of spectune's TOML files a text is.

/// A TOML file of spectune other than a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// What to sweep: [`SweepFile`](crate::sweep::SweepFile).
    Sweep,
    /// What to train: [`TrainFile`](crate::train::TrainFile).
    Train,
    /// What a sweep chose: [`TunedFile`](crate::tuned::TunedFile).
    Tuned,
}

impl FileKind {
    /// The kind of a TOML text by the names of its tables, so that a file with an error is
    /// recognised too; `None` for a launch and anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        let has = |names: &[&str]| text.lines().any(|line| header(line).is_some_and(|header| names.contains(&header)));
        if has(&["policy"]) && has(&["measured", "models", "engine"]) {
            return Some(Self::Tuned);
        }
        if has(&["training", "answers", "general"]) && has(&["models", "prompts"]) {
            return Some(Self::Train);
        }
        // No launch has these tables, and every sweep file has `[models]` and `[workload]`.
        (has(&["models"]) && has(&["workload", "batch", "space", "search", "objective", "arrivals"])
            || has(&["workload"]) && has(&["batch", "space", "search", "objective", "arrivals"]))
        .then_some(Self::Sweep)
    }

    /// The name of the kind in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep file",
            Self::Train => "training file",
            Self::Tuned => "tuned file",
        }
    }

    /// The command that takes such a file.
    pub fn command(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Train => "train",
            Self::Tuned => "serve",
        }
    }
}

/// The first key of a table's header: `workload` of `[workload.random]`, `policy` of `[[policy]]`.
fn header(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix('[')?.trim_start_matches('[');
    let key = inner.split([']', '.']).next()?;
    Some(key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_tables_even_where_they_are_wrong() {
        let check = |text: &str, expected: Option<FileKind>| assert_eq!(FileKind::from_text(text), expected, "{text}");
        check("[models]\ntarget = 3 3\n[workload]\n", Some(FileKind::Sweep));
        check("[workload.random]\ninput_length = 3\n[space]\n", Some(FileKind::Sweep));
        check("format = 9\n[models]\n[[ policy ]]\n[measured]\n", Some(FileKind::Tuned));
        check("[models]\ntarget = 3 3\n[[prompts]]\n[training]\n", Some(FileKind::Train));
        check("model_path = \"x\"\n[environment]\nA = \"b\"\n", None);
        check("SGLANG_ARGS=(\n  --x\n)\n", None);
        check("", None);
        check("[", None);
    }
}
