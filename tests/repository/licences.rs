//! Licences, sources and forbidden crates according to `deny.toml`: the checks of `cargo deny`, for
//! machines without it. Advisories need its database and are not checked here.

use std::fs;

use super::{
    dependencies::{list, metadata, text},
    root,
};

fn lists() -> toml::Table {
    fs::read_to_string(root().join("deny.toml")).expect("deny.toml").parse().expect("TOML")
}

fn strings(value: &toml::Value) -> Vec<String> {
    value.as_array().expect("a list").iter().filter_map(|one| one.as_str()).map(str::to_owned).collect()
}

#[test]
fn dependencies_have_licences_and_sources_that_are_allowed() {
    let lists = lists();
    let allowed = strings(&lists["licenses"]["allow"]);
    let forbidden: Vec<&str> =
        lists["bans"]["deny"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    let metadata = metadata();
    // The list also contains packages of other platforms, which are not part of this platform's
    // graph.
    let resolved: Vec<&str> = list(&metadata["resolve"], "nodes").iter().map(|node| text(node, "id")).collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in list(&metadata, "packages").iter().filter(|package| resolved.contains(&text(package, "id"))) {
        seen += 1;
        let name = text(package, "name");
        let licence = text(package, "license");
        if !is_allowed(licence, &allowed) {
            wrong.push(format!("{name}: the licence '{licence}' is not in the list of deny.toml"));
        }
        if forbidden.contains(&name) {
            wrong.push(format!("{name} is forbidden in deny.toml"));
        }
        // Our own crates have no source; all others come from the registry in `deny.toml`.
        let source = text(package, "source");
        if !source.is_empty() && source != "registry+https://github.com/rust-lang/crates.io-index" {
            wrong.push(format!("{name} comes from {source}"));
        }
    }
    assert!(seen > 100, "only {seen} packages were looked at");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether an SPDX expression is satisfied by allowed licences only. `A/B` is an old form of
/// `A OR B`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += usize::from(closed);
        return met && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let licence = format!("{word} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at = (*at + 2).min(words.len());
        return allowed.contains(&licence);
    }
    allowed.iter().any(|licence| licence == word)
}

#[test]
fn licence_expressions_are_read() {
    let allowed: Vec<String> = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(Into::into).into();
    let check = |text: &str, expected: bool| assert_eq!(is_allowed(text, &allowed), expected, "{text}");
    check("MIT", true);
    check("MIT OR GPL-3.0", true);
    check("GPL-3.0/MIT", true);
    check("MIT AND GPL-3.0", false);
    check("(MIT OR GPL-3.0) AND Apache-2.0", true);
    check("(GPL-3.0 AND MIT) OR LGPL-2.1", false);
    check("Apache-2.0 WITH LLVM-exception", true);
    check("GPL-2.0 WITH Classpath-exception-2.0", false);
    check("", false);
    check("MIT MIT", false);
    check("(MIT", false);
}
