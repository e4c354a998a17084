//! Links between pages.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use super::{files, prose, read, root};

#[test]
fn no_link_between_pages_is_dead() {
    let mut dead = Vec::new();
    for page in files("", ".md") {
        // Data of tests, and templates, are not pages.
        if ["tests", "fuzz/corpus", "reports/src/templates"].iter().any(|folder| page.starts_with(folder)) {
            continue;
        }
        for link in links(&read(&page)) {
            if let Some(reason) = dead_link(&page, &link) {
                dead.push(format!("{}: {link}: {reason}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Why a link of a page leads nowhere.
fn dead_link(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { normal(&page.parent()?.join(file)) };
    if !root().join(&target).exists() {
        return Some("there is no such file".into());
    }
    if page.starts_with("docs") && !target.starts_with("docs") {
        return Some("a page of the book can link only to files under docs".into());
    }
    let is_page = target.extension().is_some_and(|ending| ending == "md");
    (is_page && !anchor.is_empty() && !anchors(&read(&target)).contains(anchor))
        .then(|| format!("{} has no heading of that name", target.display()))
}

/// The targets of `[text](target)` and `![text](target)`.
pub fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Code holds brackets of its own.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for part in line.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |line: &str| -> Option<String> {
        let title = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))?;
        let kept = title.to_lowercase().replace(' ', "-");
        Some(kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect())
    };
    prose(text).filter_map(heading).collect()
}

/// A path without `.` and `..`.
pub fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

#[test]
fn dead_links_are_found() {
    let page = Path::new("docs/README.md");
    for link in ["nowhere.md", "lint.md#no-such-heading", "../README.md", "#nothing"] {
        assert!(dead_link(page, link).is_some(), "{link}");
    }
    for link in ["lint.md", "lint.md#the-rules", "images/report.png", "https://example.org/x.md"] {
        assert_eq!(dead_link(page, link), None, "{link}");
    }
    assert_eq!(links("a [b](c.md) `[x](y)` ![d](e.png)\n```\n[f](g)\n```\n"), ["c.md", "e.png"]);
}

/// Paths that CONTRIBUTING.md names in code: whole ones, without placeholders in capitals.
#[test]
fn contributing_names_files_that_exist() {
    let text = read(Path::new("CONTRIBUTING.md"));
    let top: Vec<String> = std::fs::read_dir(root())
        .expect("the root")
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let mut named = 0;
    for code in prose(&text).flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let path = code.trim_end_matches('/');
        let is_path =
            path.split('/').next().is_some_and(|first| path.contains('/') && top.iter().any(|name| name == first));
        let has_placeholder =
            path.split(['/', '.', '_']).any(|part| part.len() > 1 && part.chars().all(char::is_uppercase));
        if is_path && !has_placeholder && !path.contains(char::is_whitespace) {
            named += 1;
            assert!(root().join(path).exists(), "CONTRIBUTING.md names {path}, which does not exist");
        }
    }
    assert!(named > 20, "only {named} paths were found in CONTRIBUTING.md");
}
