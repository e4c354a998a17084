//! Lints every file of a list as `spectune lint FOLDER` would, and prints the launches and their
//! findings, for studies of published launches. Model facts come only from the table of published
//! models.
//!
//! `cargo run -p lint --example field ROOT LIST`: LIST contains paths relative to ROOT, one per
//! line. Each output line starts with `L` (a launch), `E` (an error) or `W` (a warning); fields are
//! separated by tabs. The totals go to standard error.

use std::{env, fs, time::Instant};

use launch::parse;
use lint::{
    published_models,
    report::{ReportOptions, report},
};
use schemas::{
    diagnostic::Severity,
    text::{Source, Span},
};

/// Maximum length of a printed excerpt, in characters.
const EXCERPT: usize = 400;

#[derive(Default)]
struct Totals {
    files: usize,
    with_launches: usize,
    launches: usize,
    bytes: usize,
    seconds: f64,
}

fn main() {
    let mut arguments = env::args().skip(1);
    let (Some(root), Some(list)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: field ROOT LIST");
        return;
    };
    let list = match fs::read_to_string(&list) {
        Ok(list) => list,
        Err(error) => return eprintln!("cannot read {list}: {error}"),
    };
    let mut totals = Totals::default();
    for path in list.lines() {
        // A file that is not UTF-8 contains no launch.
        if let Ok(text) = fs::read_to_string(format!("{root}/{path}")) {
            look(path, text, &mut totals);
        }
    }
    let Totals { files, with_launches, launches, bytes, seconds } = totals;
    eprintln!("{files} files of {bytes} bytes, {with_launches} with launches, {launches} launches, {seconds:.2} s");
}

fn look(path: &str, text: String, totals: &mut Totals) {
    totals.files += 1;
    totals.bytes += text.len();
    let source = Source::new(path, text);
    let start = Instant::now();
    let parsed = parse(&source, &launch::Options::default());
    let has_launches = !parsed.launches.is_empty();
    totals.launches += parsed.launches.len();
    totals.with_launches += usize::from(!parsed.launches.is_empty());
    for launch in &parsed.launches {
        let version = launch.engine_version.map_or_else(|| "-".to_owned(), |version| version.value.to_string());
        let line = source.position(launch.anchor.start).line;
        let part = if launch.is_part { "part" } else { "whole" };
        println!(
            "L\t{path}:{line}\t{}\t{:?}\t{version}\t{part}\t{}",
            launch.engine,
            launch.launcher,
            short(&launch.to_string())
        );
    }
    let found = report(&source, parsed, published_models::facts_of, &ReportOptions::default()).findings;
    totals.seconds += start.elapsed().as_secs_f64();
    if !has_launches {
        return;
    }
    for one in found.iter().filter(|one| one.severity > Severity::Info) {
        let place = source.position(one.span.start);
        let line = source.slice(Span::new(source.line_start(one.span.start), source.line_end(one.span.start)));
        let sign = if one.severity == Severity::Error { 'E' } else { 'W' };
        println!(
            "{sign}\t{path}:{}:{}\t{}\t{}\t{}",
            place.line,
            place.column,
            one.code,
            short(&one.message),
            short(line.trim())
        );
    }
}

/// A text on one line, cut to [`EXCERPT`] characters.
fn short(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect()
}
