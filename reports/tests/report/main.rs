//! Reports of synthetic trials, read back in every format.

#[path = "../common/mod.rs"]
mod common;
mod comparison;
mod figures;
#[path = "../common/folders.rs"]
mod folders;
mod guided;
mod whole;

use std::{collections::BTreeSet, fs, path::Path};

use common::synthetic::{self, Synthetic};
use reports::{ReportInput, Sweep};
use schemas::tree::TreeShape;
use tuner::trials::record::{Outcome, Record};

fn small() -> Synthetic {
    let shapes = [TreeShape::OFF, TreeShape::chain(1), TreeShape::chain(3)]
        .into_iter()
        .chain(
            [(5, 4, 8), (3, 4, 16), (5, 8, 64)].map(|(steps, topk, nodes)| TreeShape::whole_tree(steps, topk, nodes)),
        )
        .collect();
    Synthetic { batch_sizes: vec![1, 8], shapes, repeats: 3, ..Synthetic::default() }
}

fn input(sweep: Sweep) -> ReportInput {
    ReportInput { sweeps: vec![sweep], compare: false }
}

/// Writes the report, checks what must hold for every report, and returns its web page.
fn check(input: &ReportInput) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let files = reports::write(input, folder.path()).expect("written");
    let names: BTreeSet<String> =
        files.iter().map(|path| path.strip_prefix(folder.path()).expect("inside").display().to_string()).collect();
    for name in
        ["report.html", "report.md", "report.json", "trials.csv", "trials.parquet", "ranking.csv", "ranking.parquet"]
    {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    let left: Vec<_> = walk(folder.path()).into_iter().filter(|name| !names.contains(name)).collect();
    assert_eq!(left, Vec::<String>::new(), "nothing but the files that were returned");

    let html = fs::read_to_string(folder.path().join("report.html")).expect("a page");
    loads_nothing(&html);
    let markdown = fs::read_to_string(folder.path().join("report.md")).expect("Markdown");
    assert!(markdown.contains("is measured"), "{markdown}");
    let data: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("report.json")).expect("JSON")).expect("valid");
    assert_eq!(data["format"], "spectune-report");
    assert_eq!(data["version"], 5);
    let embedded =
        html.split_once("id=\"report-data\">").expect("embedded").1.split_once("</script>").expect("closed").0;
    assert_eq!(serde_json::from_str::<serde_json::Value>(embedded).expect("valid"), data, "the page carries the rows");
    for file in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "svg")) {
        let svg = fs::read_to_string(file).expect("a drawing");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{}", file.display());
        let picture = fs::read(file.with_extension("png")).expect("a picture beside it");
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 1000, "{}", file.display());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", file.display());
        let html_part =
            svg.replacen(&svg[svg.find("<style>").expect("a style")..svg.find("</style>").expect("closed") + 8], "", 1);
        assert!(html.contains(html_part.trim()), "{} is in the page", file.display());
    }
    assert!(reports::terminal_table(input, 100).lines().all(|line| !line.contains('\u{1b}')));
    html
}

fn walk(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() {
                walk(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}")).collect()
            } else {
                vec![name]
            }
        })
        .collect()
}

/// Checks that no element, rule or script of the page loads anything.
fn loads_nothing(html: &str) {
    let lower = html.to_lowercase();
    for tag in lower.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or(rest)) {
        let name = tag.split_whitespace().next().unwrap_or_default();
        assert!(!["img", "iframe", "object", "embed", "base", "video", "audio", "source"].contains(&name), "<{tag}>");
        for attribute in ["src=", "srcset=", "action=", "data=", "xlink:href="] {
            assert!(!tag.contains(&format!(" {attribute}")), "<{tag}>");
        }
        if let Some((_, target)) = tag.split_once("href=\"") {
            assert!(target.starts_with('#') || target.starts_with("data:,"), "<{tag}>");
        }
    }
    let style = lower.split_once("<style>").expect("a style").1.split_once("</style>").expect("closed").0;
    let script = lower.rsplit_once("<script>").expect("a script").1;
    for part in ["@import", "url(", "fetch(", "xmlhttprequest", "import(", "http"] {
        assert!(!style.contains(part) && !script.contains(part), "{part}");
    }
}

/// A sweep like `small` on another driver, with each record's figures multiplied by `factor`.
fn elsewhere(name: &str, driver: &str, factor: impl Fn(&Record) -> f64) -> Sweep {
    let mut sweep = small().sweep(name);
    for record in &mut sweep.records {
        record.id.push_str(driver);
        record.fingerprint.driver = driver.into();
        let factor = factor(record);
        if let Outcome::Measured(figures) = &mut record.outcome {
            figures.output_tokens_per_s *= factor;
            figures.tokens_per_s_per_user *= factor;
        }
    }
    sweep
}
