//! YAML and TOML files of the repository parse, and those that other programs load have the keys
//! that these read.

use saphyr_parser::{Event, Parser};

use super::{files, read};

/// The keys of the mapping at the top of a YAML file; panics if the file does not parse.
fn top_keys(text: &str, name: &str) -> Vec<String> {
    let (mut depth, mut keys, mut is_key) = (0, Vec::new(), true);
    for event in Parser::new_from_str(text) {
        let (event, _) = event.unwrap_or_else(|error| panic!("{name}: {error}"));
        let (opens, closes) = (
            matches!(event, Event::MappingStart(..) | Event::SequenceStart(..)),
            matches!(event, Event::MappingEnd | Event::SequenceEnd),
        );
        if closes {
            depth -= 1;
        }
        // In a mapping, keys and values alternate.
        if depth == 1 && (matches!(event, Event::Scalar(..) | Event::Alias(_)) || opens || closes) {
            if let (Event::Scalar(text, ..), true) = (&event, is_key) {
                keys.push(text.to_string());
            }
            is_key = if opens { is_key } else { !is_key };
        }
        if opens {
            depth += 1;
        }
    }
    keys
}

fn yaml_files() -> Vec<String> {
    let folders = [".", ".github", "tests/clients"];
    let found = folders.iter().flat_map(|folder| [".yml", ".yaml"].map(|ending| files(folder, ending)));
    let mut names: Vec<String> = found.flatten().map(|path| path.display().to_string()).collect();
    names.sort();
    names.dedup();
    // Launches that are broken on purpose, and templates, which are YAML only once they are
    // rendered.
    let others = ["tests/data/", "fuzz/", "schemas/lint/cases/templates/"];
    names.retain(|name| others.iter().all(|other| !name.starts_with(other)));
    names
}

#[test]
fn yaml_files_of_the_repository_parse() {
    let names = yaml_files();
    for expected in ["action.yml", ".pre-commit-hooks.yaml", ".github/workflows/ci.yml"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is missing from {names:?}");
    }
    names.iter().for_each(|name| drop(top_keys(&read(name.as_ref()), name)));
}

#[test]
fn the_action_and_the_workflows_have_the_keys_that_github_reads() {
    let keys = top_keys(&read("action.yml".as_ref()), "action.yml");
    assert_eq!(keys, ["name", "description", "branding", "inputs", "outputs", "runs"]);
    for name in [".github/workflows/ci.yml", ".github/workflows/release.yml"] {
        let keys = top_keys(&read(name.as_ref()), name);
        for key in ["name", "on", "jobs"] {
            assert!(keys.iter().any(|one| one == key), "{name} has no `{key}`: {keys:?}");
        }
    }
}

#[test]
fn toml_files_of_the_repository_parse() {
    let mut names: Vec<_> = files(".", ".toml").into_iter().map(|path| path.display().to_string()).collect();
    names.retain(|name| !name.starts_with("tests/data/") && !name.starts_with("fuzz/"));
    assert!(names.iter().any(|name| name.ends_with("sweeps/demo.toml")), "{names:?}");
    for name in names {
        read(name.as_ref()).parse::<toml::Table>().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
