//! The book: every page is listed once, and the list of rules is up to date.

use std::{collections::BTreeSet, path::Path};

use super::{check_generated, files, links, prose, read};

const SUMMARY: &str = "docs/SUMMARY.md";
const RULES: &str = "  - [Rules](rules/README.md)";

#[test]
fn the_summary_lists_every_page_once() {
    let summary = read(Path::new(SUMMARY));
    let listed: Vec<String> = links::links(&summary);
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "{SUMMARY} lists a page twice");
    for page in files("docs", ".md") {
        let page = page.strip_prefix("docs").expect("below docs").to_string_lossy().replace('\\', "/");
        let is_listed = listed.contains(&page);
        assert!(is_listed || page == "SUMMARY.md", "docs/{page} is not in {SUMMARY}");
    }
    // mdBook creates an empty page for an entry without a file; `links` finds such entries.
}

/// The entries of the rules, below the index of the rules; `SPECTUNE_UPDATE=1` regenerates them.
#[test]
fn the_summary_lists_the_rules() {
    let summary = read(Path::new(SUMMARY));
    let mut text = String::new();
    for line in summary.lines().filter(|line| !is_entry_of_a_rule(line)) {
        text.push_str(line);
        text.push('\n');
        if line == RULES {
            for page in files("docs/rules", ".md") {
                let name = page.file_name().expect("a name").to_string_lossy().into_owned();
                let heading = prose(&read(&page)).find_map(|line| line.strip_prefix("# ").map(str::to_owned));
                if let Some(heading) = heading.filter(|_| name != "README.md") {
                    text.push_str(&format!("    - [{heading}](rules/{name})\n"));
                }
            }
        }
    }
    assert!(summary.contains(RULES), "{SUMMARY} has no line '{RULES}'");
    check_generated(SUMMARY, &text);
}

fn is_entry_of_a_rule(line: &str) -> bool {
    line.starts_with("    - [") && line.contains("](rules/")
}
