//! Every rule has a page, and its page's examples are true.

use std::{fs, path::PathBuf};

use schemas::diagnostic::{Findings, Format, Severity, render};
use schemas::text::Source;

use super::super::{Applies, RULES, examples::Example};

#[test]
fn codes_and_names_are_unique_and_in_order() {
    assert!(RULES.windows(2).all(|pair| pair[0].code < pair[1].code));
    let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn every_file_of_a_rule_is_in_the_registry_under_its_code_and_name() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/rules");
    let groups = fs::read_dir(&folder).expect("the folder").flatten().filter(|entry| entry.path().is_dir());
    let mut found: Vec<String> = groups
        .flat_map(|group| fs::read_dir(group.path()).expect("a group").flatten())
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned()))
        .filter(|name| {
            ["nr", "sd", "vl"].iter().any(|prefix| {
                name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
            })
        })
        .collect();
    found.sort();
    let registered: Vec<String> =
        RULES.iter().map(|rule| format!("{}_{}", rule.code.to_lowercase(), rule.name.replace('-', "_"))).collect();
    assert_eq!(found, registered);
}

#[test]
fn every_page_has_its_title_and_its_parts() {
    for rule in RULES {
        let page = rule.page();
        assert_eq!(page.title, format!("{}: {}", rule.code, rule.name));
        assert!(page.summary.ends_with('.') && page.summary.len() < 160, "{}: {}", rule.code, page.summary);
        let plain = page.plain();
        for part in ["WHAT IT DOES", "WHY IS THIS BAD?", "EXAMPLE", "USE INSTEAD", "VERSIONS", "SOURCE"] {
            assert!(plain.contains(&format!("{part}\n")), "{} has no part '{part}'", rule.code);
        }
        let who = if rule.applies == Applies::Sglang { "WHAT SGLANG DOES" } else { "WHAT" };
        assert!(plain.contains(who), "{} does not say what sglang does", rule.code);
    }
}

#[test]
fn every_block_of_a_page_is_introduced_in_words() {
    for rule in RULES {
        for text in [rule.page().markdown(), rule.page().plain()] {
            assert!(!text.contains("\n\n\n"), "{} has a block without a caption:\n{text}", rule.code);
        }
    }
}

#[test]
fn every_example_is_true() {
    let mut untrue = Vec::new();
    for rule in RULES {
        let examples = Example::all_of(&rule.page());
        assert!(examples.iter().any(|example| example.bad), "{} has a bad example", rule.code);
        assert!(examples.iter().any(|example| !example.bad), "{} has a good example", rule.code);
        for example in examples {
            let found = example.findings();
            let mut codes: Vec<&str> = found.iter().map(|diagnostic| diagnostic.code).collect();
            codes.sort_unstable();
            codes.dedup();
            if example.bad {
                let mut expected: Vec<&str> = example.also.iter().map(String::as_str).chain([rule.code]).collect();
                expected.sort_unstable();
                if codes != expected {
                    untrue.push(format!("{}: {codes:?} and not {expected:?} in\n{}", rule.code, example.text()));
                }
            } else if codes.contains(&rule.code) {
                untrue.push(format!("{}: found in its good example\n{}", rule.code, example.text()));
            }
        }
    }
    assert!(untrue.is_empty(), "{}", untrue.join("\n"));
}

#[test]
fn every_fix_removes_its_finding() {
    for rule in RULES {
        for example in Example::all_of(&rule.page()).iter().filter(|example| example.bad) {
            let Some(found) = example.findings_when_fixed(rule) else { continue };
            let still: Vec<_> = found.iter().filter(|found| found.code == rule.code).collect();
            assert!(still.is_empty(), "{} after its fix in\n{}\n{still:?}", rule.code, example.text());
        }
    }
}

#[test]
fn findings_are_worded_alike_and_say_what_to_do() {
    for rule in RULES {
        for example in Example::all_of(&rule.page()).iter().filter(|example| example.bad) {
            for found in example.findings().iter().filter(|found| found.code == rule.code) {
                let one_sentence = !found.message.ends_with('.') && !found.message.contains('\n');
                // Names of algorithms and models keep their capitals.
                let word = found.message.split(' ').next().unwrap_or_default();
                let capitals = word.chars().filter(|letter| letter.is_uppercase()).count();
                let capitalised = capitals == 1 && word.starts_with(char::is_uppercase);
                assert!(one_sentence && !capitalised, "{}: {}", rule.code, found.message);
                assert!(found.severity <= rule.severity, "{}", rule.code);
                assert!(found.help.is_some() || found.severity == Severity::Info, "{} has no help", rule.code);
                let source = Source::new("launch.sh", example.text());
                let shown = render(
                    &[Findings { source: &source, diagnostics: std::slice::from_ref(found) }],
                    Format::Full,
                    false,
                );
                assert!(shown.contains(rule.code));
            }
        }
    }
}

/// The pages of all rules in the repository; `SPECTUNE_UPDATE=1` regenerates them.
#[test]
fn the_pages_in_the_docs_are_those_of_the_rules() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules");
    let mut pages: Vec<(String, String)> =
        RULES.iter().map(|rule| (format!("{}.md", rule.code), rule.page().markdown())).collect();
    pages.push(("README.md".into(), index()));
    if std::env::var_os("SPECTUNE_UPDATE").is_some() {
        fs::create_dir_all(&folder).expect("the folder can be made");
        for (name, text) in &pages {
            fs::write(folder.join(name), text).expect("the page can be written");
        }
    }
    for (name, text) in &pages {
        let found = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(found == *text, "docs/rules/{name} is stale: run the tests with SPECTUNE_UPDATE=1");
    }
    let there = fs::read_dir(&folder).expect("the folder").flatten().count();
    assert_eq!(there, pages.len(), "docs/rules holds a page of no rule");
}

fn index() -> String {
    let mut text = String::from(
        "# Rules\n\nWhat `spectune lint` looks for. The pages are made from the rules' own files; `spectune explain CODE` \
         prints them in a terminal.\n\n| code | name | severity | what it finds |\n|---|---|---|---|\n",
    );
    for rule in RULES {
        let (code, severity) = (rule.code, rule.severity.word());
        text.push_str(&format!("| [{code}]({code}.md) | {} | {severity} | {} |\n", rule.name, rule.page().summary));
    }
    text.push_str(
        "\nFindings about the text itself:\n\n| code | name | severity | what it finds |\n|---|---|---|---|\n",
    );
    for problem in schemas::problems::PROBLEMS {
        let severity = problem.severity.word();
        text.push_str(&format!("| {} | {} | {severity} | {} |\n", problem.code, problem.name, problem.summary));
    }
    text
}
