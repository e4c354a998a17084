//! Every crate uses the dependencies that it declares.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::root;

/// Crates that are declared only for their features: argmin's solvers need its traits for vectors.
const FOR_FEATURES: &[&str] = &["argmin_math"];

/// The output of `cargo metadata` for all packages, on this platform, without network access.
pub fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", env!("SPECTUNE_BUILD_TARGET")])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[test]
fn every_dependency_is_used() {
    let metadata = metadata();
    let members = list(&metadata, "workspace_members");
    let mut unused = Vec::new();
    for package in list(&metadata, "packages").iter().filter(|package| members.contains(&package["id"])) {
        let folder = Path::new(text(package, "manifest_path")).parent().expect("a folder");
        let shipped = sources(&folder.join("src"));
        let build = fs::read_to_string(folder.join("build.rs")).unwrap_or_default();
        let mut all = sources(folder);
        // Tests that span crates are outside the folder, some in several files.
        for target in list(package, "targets") {
            let path = Path::new(text(target, "src_path"));
            all.push_str(&fs::read_to_string(path).unwrap_or_default());
            all.push_str(&sources(&path.with_extension("")));
        }
        for dependency in list(package, "dependencies") {
            let name = dependency["rename"].as_str().unwrap_or(text(dependency, "name")).replace('-', "_");
            let text_of = match dependency["kind"].as_str() {
                None => &shipped,
                Some("build") => &build,
                Some(_) => &all,
            };
            if !names(text_of, &name) && !FOR_FEATURES.contains(&name.as_str()) {
                unused.push(format!("{} declares {name} and does not use it", text(package, "name")));
            }
        }
    }
    assert!(unused.is_empty(), "{}", unused.join("\n"));
}

#[test]
fn every_dependency_of_the_workspace_has_a_user() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let metadata = metadata();
    let members = list(&metadata, "workspace_members");
    let used: Vec<&str> = list(&metadata, "packages")
        .iter()
        .filter(|package| members.contains(&package["id"]))
        .flat_map(|package| list(package, "dependencies"))
        .map(|dependency| text(dependency, "name"))
        .collect();
    let shared = manifest["workspace"]["dependencies"].as_table().expect("a table");
    for name in shared.keys() {
        assert!(used.contains(&name.as_str()), "no crate uses the workspace's dependency {name}");
    }
}

/// Whether a text uses a crate: `name::…`, `use name`, or a derive or attribute.
fn names(text: &str, name: &str) -> bool {
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let whole = !is_word(before.chars().next_back()) && !is_word(after.chars().next());
        let imported = ["use ", "extern crate "].iter().any(|word| before.ends_with(word));
        whole && !before.ends_with("crate::") && (after.starts_with("::") || imported)
    })
}

/// All Rust sources under a folder, concatenated.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
    text
}

#[test]
fn uses_are_distinguished_from_other_words() {
    for text in ["use toml::Table;", "let x = toml::Value;", "use toml;", "#[derive(toml::X)]"] {
        assert!(names(text, "toml"), "{text}");
    }
    for text in ["// toml is a format", "use crate::toml::read;", "toml_edit::de", "let toml = 1;"] {
        assert!(!names(text, "toml"), "{text}");
    }
}
