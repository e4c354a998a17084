//! Launch texts with their expected findings: the files of `cases/AREA/`, read under their own
//! names.
//!
//! A file says what is found in it, in comments of its own language: a line that contains
//! `expect: CODE severity` for each finding, or `expect: nothing`. A file whose format has no
//! comments has them in `NAME.expect` beside it. Findings that are only information need not be
//! named. Facts of models come from the table of published ones.

use std::{
    fs,
    path::{Path, PathBuf},
};

use launch::TextForm;
use lint::report::{ReportOptions, report_text};
use schemas::{diagnostic::Severity, text::Source};

#[test]
fn findings_in_the_cases_are_the_expected_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for area in sorted(&root) {
        for path in files(&area).into_iter().filter(|path| path.extension().is_none_or(|ending| ending != "expect")) {
            count += 1;
            let name = path.strip_prefix(&area).expect("below its area").display().to_string().replace('\\', "/");
            wrong.extend(check(&path, &name).err().map(|message| format!("{}: {message}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 0, "{} has no cases", root.display());
}

/// The table of forms in the book: its texts and severities are those of the code, and each has an
/// example.
#[test]
fn the_table_of_forms_is_true() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(crate_root.join("../../docs/lint.md")).expect("the page");
    let table = page.split_once("| text | at most | example").expect("the table").1;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let expected: Vec<[&str; 2]> =
        TextForm::ALL.iter().map(|form| [form.title(), form.highest_severity().word()]).collect();
    assert_eq!(rows.iter().map(|row| [row[0], row[1]]).collect::<Vec<_>>(), expected);
    for row in &rows {
        let name = row[2].trim_matches('`');
        let text = fs::read_to_string(crate_root.join("cases/forms").join(name)).expect(name);
        let found = report_text(&Source::new(name, text), &ReportOptions::default()).findings;
        let highest = found.iter().map(|one| one.severity).max().expect(name);
        assert_eq!(highest.word(), row[1], "{name}");
    }
}

fn check(path: &Path, name: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut extra = path.as_os_str().to_owned();
    extra.push(".expect");
    let expected = expected(&fs::read_to_string(PathBuf::from(extra)).unwrap_or_else(|_| text.clone()))?;
    let found = report_text(&Source::new(name, text), &ReportOptions::default()).findings;
    let found = found.iter().map(|one| (one.code.to_owned(), one.severity));
    let mut found: Vec<(String, Severity)> =
        found.filter(|one| one.1 > Severity::Info || expected.contains(one)).collect();
    found.sort();
    if found == expected { Ok(()) } else { Err(format!("expected {expected:?}, found {found:?}")) }
}

/// The expected findings, sorted.
fn expected(text: &str) -> Result<Vec<(String, Severity)>, String> {
    let lines: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("expect: ")?.1)).collect();
    if lines.is_empty() {
        return Err("no line says `expect: CODE severity` or `expect: nothing`".into());
    }
    let mut found = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["nothing", ..] => {}
            [code, "error", ..] => found.push(((*code).to_owned(), Severity::Error)),
            [code, "warning", ..] => found.push(((*code).to_owned(), Severity::Warning)),
            [code, "info", ..] => found.push(((*code).to_owned(), Severity::Info)),
            _ => return Err(format!("`expect: {line}` is not a code and a severity")),
        }
    }
    found.sort();
    Ok(found)
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    sorted(folder).into_iter().flat_map(below).collect()
}
