//! The findings in the launch texts of the repository, compared with `snapshot.txt`: a change of a
//! reader or a rule shows there what it changes elsewhere. `SPECTUNE_UPDATE=1` rewrites the file;
//! read its diff before you commit it.
//!
//! A line is a text and its findings: code and severity (`E`, `W`, `I`) of each, and a hash of
//! everything that is printed, places and fixes included.
//! `cargo run -p lint --example findings FOLDER` prints the findings themselves. Texts are read
//! under their own names; inputs of the fuzzer have none, and some are read under several.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use schemas::{diagnostic::Diagnostic, text::Source};

use super::{ReportOptions, report_text};
use crate::rules::{Example, RULES};

/// Folders of texts, relative to the root of the repository, and the endings that are added to the
/// names in them.
const FOLDERS: [(&str, &[&str]); 6] = [
    ("schemas/lint/cases", &[""]),
    ("tests/data/launches", &[""]),
    ("fuzz/corpus/launch", &["", ".md", ".py", ".yaml"]),
    ("fuzz/corpus/lint", &[""]),
    ("fuzz/corpus/suppression", &[""]),
    ("fuzz/corpus/vllm_speculation", &[""]),
];

/// Records with the fields `id` and `launch`.
const CORPUS: &str = "tests/data/launches.jsonl";

#[test]
fn findings_are_those_of_the_snapshot() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut lines = SnapshotLines::default();
    for rule in RULES {
        for (number, example) in Example::all_of(&rule.page()).iter().enumerate() {
            lines.add(&format!("{}/{number}", rule.code), &example.findings());
        }
    }
    for (folder, endings) in FOLDERS {
        for path in files(&root, Path::new(folder)) {
            let name = path.to_str().expect("a path in UTF-8").replace('\\', "/");
            let bytes = fs::read(root.join(&path)).expect("a file");
            let text = String::from_utf8_lossy(&bytes);
            for ending in endings {
                lines.look(&Source::new(format!("{name}{ending}"), text.as_ref()));
            }
        }
    }
    let corpus = fs::read_to_string(root.join(CORPUS)).expect("the corpus");
    for record in corpus.lines() {
        let record: serde_json::Value = serde_json::from_str(record).expect("a record");
        let field = |name: &str| record[name].as_str().expect("a text");
        lines.look(&Source::new(format!("{CORPUS}/{}", field("id")), field("launch")));
    }
    compare(&lines.finish());
}

#[derive(Default)]
struct SnapshotLines {
    text: String,
    texts: usize,
    silent: usize,
}

impl SnapshotLines {
    fn look(&mut self, source: &Source) {
        self.add(source.name(), &report_text(source, &ReportOptions::default()).findings);
    }

    fn add(&mut self, name: &str, found: &[Diagnostic]) {
        self.texts += 1;
        if found.is_empty() {
            self.silent += 1;
            return;
        }
        let codes: Vec<String> = found.iter().map(brief).collect();
        // The name of an input of the fuzzer is a long hash: eight digits of it are enough.
        let name = match name.strip_prefix("fuzz/corpus/").and_then(|name| name.split_once('/')) {
            Some((folder, name)) if name.len() >= 40 => format!("{folder}/{}{}", &name[..8], &name[40..]),
            _ => name.to_owned(),
        };
        writeln!(self.text, "{name} {} #{:08x}", codes.join(" "), hash(&format!("{found:?}")) >> 32).expect("a string");
    }

    fn finish(mut self) -> String {
        writeln!(self.text, "{} of {} texts have no findings", self.silent, self.texts).expect("a string");
        self.text
    }
}

fn brief(found: &Diagnostic) -> String {
    format!("{}{}", found.code, found.severity.word().get(..1).unwrap_or_default().to_uppercase())
}

/// FNV-1a, which unlike the hasher of the standard library is the same in every version of Rust.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The files below a folder, sorted.
fn files(root: &Path, path: &Path) -> Vec<PathBuf> {
    let whole = root.join(path);
    if whole.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(&whole).unwrap_or_else(|error| panic!("{}: {error}", whole.display()));
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names.iter().flat_map(|name| files(root, &path.join(name))).collect()
}

fn compare(found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/snapshot.txt");
    if std::env::var_os("SPECTUNE_UPDATE").is_some_and(|value| value == "1") {
        fs::write(path, found).expect("the snapshot is written");
        return;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    let differing = |one: &str, other: &str| -> Vec<String> {
        let known: std::collections::BTreeSet<&str> = other.lines().collect();
        one.lines().filter(|line| !known.contains(line)).map(str::to_owned).collect()
    };
    let (gone, new) = (differing(&expected, found), differing(found, &expected));
    assert!(
        gone.is_empty() && new.is_empty(),
        "the findings differ from src/report/snapshot.txt; if that is intended, run the tests with SPECTUNE_UPDATE=1\n\
         before:\n{}\nnow:\n{}",
        gone.join("\n"),
        new.join("\n")
    );
}
