//! The examples on pages are what the commands print.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::root;

/// A block of a page: the commands after `$`, each with the lines that follow it.
fn commands(block: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => panic!("{line} is before the first command"),
        }
    }
    found
}

/// What a command prints in a folder, messages first; no model is in its cache.
fn printed(command: &str, folder: &TempDir) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[0], "spectune", "{command}");
    let ran = Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args(&words[1..])
        .current_dir(folder.path())
        .env("HF_HOME", folder.path())
        .env_remove("HF_HUB_CACHE")
        .output()
        .expect("the binary starts");
    format!("{}{}", String::from_utf8_lossy(&ran.stderr), String::from_utf8_lossy(&ran.stdout))
}

/// Checks that lines are printed one after the other; `[…]` stands for lines that are left out.
fn check(command: &str, expected: &[&str], printed: &str) {
    let mut rest = printed.lines();
    let mut may_skip = true;
    for line in expected {
        if *line == "[…]" {
            may_skip = true;
            continue;
        }
        let found = if may_skip { rest.any(|one| one == *line) } else { rest.next() == Some(line) };
        assert!(found, "{command} does not print {line:?} there, but\n{printed}");
        may_skip = false;
    }
}

/// The first block of a page that has this command.
fn block<'a>(page: &'a str, command: &str) -> &'a str {
    let mut blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.find(|block| block.lines().any(|line| line.starts_with(command))).expect(command)
}

#[test]
fn the_first_example_of_the_readme_is_what_tune_prints() {
    let page = fs::read_to_string(root().join("README.md")).expect("the page");
    let commands = commands(block(&page, "$ spectune tune"));
    let [(_, launch), (tune, lines)] = commands.as_slice() else { panic!("{commands:?}") };
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("run.sh"), format!("{}\n", launch.join("\n"))).expect("writable");
    check(tune, lines, &printed(tune, &folder));
}

#[test]
fn the_finding_on_pages_is_what_lint_prints() {
    let launch =
        fs::read_to_string(root().join("tests/data/launches/slime-guide-llama31-eagle3.sh")).expect("a launch");
    let without: Vec<&str> = launch.lines().filter(|line| !line.contains("--sglang-dtype")).collect();
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("run.sh"), format!("{}\n", without.join("\n"))).expect("writable");
    for name in ["README.md", "docs/lint.md"] {
        let page = fs::read_to_string(root().join(name)).expect("the page");
        for (lint, lines) in commands(block(&page, "$ spectune lint")) {
            check(lint, &lines, &printed(lint, &folder));
        }
    }
}
