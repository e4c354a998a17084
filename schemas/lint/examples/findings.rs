//! Prints the findings in every file of a folder, one line per finding, to compare two versions of
//! the linter on texts that are not in the repository. Model facts come only from the table of
//! published models.
//!
//! `cargo run -p lint --example findings FOLDER [LIST]`: LIST contains paths relative to FOLDER,
//! one per line; without it, all files of the folder are read. Each line has the file, the place,
//! code, severity, message, notes, help and edits.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use lint::report::{ReportOptions, report_text};
use schemas::{diagnostic::Diagnostic, text::Source};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let Some(root) = arguments.next() else {
        eprintln!("usage: findings FOLDER [LIST]");
        return ExitCode::from(2);
    };
    let paths = match arguments.next() {
        Some(list) => fs::read_to_string(list).map(|list| list.lines().map(PathBuf::from).collect()),
        None => files(&root, Path::new("")),
    };
    let paths: Vec<PathBuf> = match paths {
        Ok(paths) => paths,
        Err(error) => {
            eprintln!("cannot read the files of {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    for path in paths {
        // A file that is not UTF-8 contains no launch.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let source = Source::new(path.display().to_string(), text);
        for finding in report_text(&source, &ReportOptions::default()).findings {
            println!("{}", line(&source, &finding));
        }
    }
    ExitCode::SUCCESS
}

/// The files below a folder, relative to it, sorted.
fn files(root: &Path, below: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut entries: Vec<_> = fs::read_dir(root.join(below))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut found = Vec::new();
    for entry in entries {
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(files(root, &path)?);
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

fn line(source: &Source, finding: &Diagnostic) -> String {
    let place = source.position(finding.span.start);
    let edits = finding.fix.iter().flat_map(|fix| &fix.edits);
    let edits: Vec<String> =
        edits.map(|edit| format!("{}..{}={:?}", edit.span.start, edit.span.end, edit.replacement)).collect();
    format!(
        "{}:{}:{}\t{}\t{}\t{:?}\t{:?}\t{:?}\t{}",
        source.name(),
        place.line,
        place.column,
        finding.code,
        finding.severity.word(),
        finding.message,
        finding.notes,
        finding.help.as_deref().unwrap_or_default(),
        edits.join(" ")
    )
}
