//! Modules of a crate do not import each other in a cycle, except parent and child.
//!
//! The check reads the sources: `use` declarations, and paths that start with `crate`, `self` or
//! `super`. A module is a file.
//!
//! Run by the crate `cli`: `cargo test -p cli --test module_cycles`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The folders of the crates.
const CRATES: [&str; 12] = [
    "schemas",
    "schemas/launch",
    "schemas/lint",
    "kernels",
    "facts",
    "engine",
    "server",
    "external",
    "tuner",
    "training",
    "reports",
    "cli",
];

type Module = Vec<String>;

#[test]
fn modules_do_not_import_each_other_in_a_cycle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cycles = Vec::new();
    for name in CRATES {
        let modules = modules_of(&root.join(name).join("src"));
        assert!(!modules.is_empty(), "{name} has no source");
        let mut imports = BTreeMap::new();
        for (module, file) in &modules {
            let source = fs::read_to_string(file).expect("a source file");
            let mut found = imported(module, &code_of(&source), &modules);
            found.retain(|other| !is_related(module, other));
            imports.insert(module.clone(), found);
        }
        cycles.extend(cycle(&imports).map(|cycle| format!("{name}: {}", cycle.join(" → "))));
    }
    assert!(cycles.is_empty(), "modules import each other:\n{}", cycles.join("\n"));
}

/// A cycle that enters a module through its parent is invisible above, where parent and child are
/// one family. Here each top-level module is one node with all that is below it.
#[test]
fn top_level_modules_do_not_import_each_other_in_a_cycle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cycles = Vec::new();
    for name in CRATES {
        let modules = modules_of(&root.join(name).join("src"));
        let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, file) in modules.iter().filter(|(module, _)| !module.is_empty()) {
            let source = fs::read_to_string(file).expect("a source file");
            for other in imported(module, &code_of(&source), &modules).into_iter().filter(|other| !other.is_empty()) {
                if module[0] != other[0] {
                    imports.entry(vec![module[0].clone()]).or_default().insert(vec![other[0].clone()]);
                }
            }
        }
        cycles.extend(cycle(&imports).map(|cycle| format!("{name}: {}", cycle.join(" → "))));
    }
    assert!(cycles.is_empty(), "modules import each other:\n{}", cycles.join("\n"));
}

/// The modules of a crate with their files, without test modules.
fn modules_of(source: &Path) -> BTreeMap<Module, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(source).expect("below the folder").with_extension("");
                let mut module: Module =
                    relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
                module.retain(|part| part != "lib" && part != "main");
                if !module.iter().any(|part| part == "tests") {
                    found.insert(module, path);
                }
            }
        }
    }
    found
}

/// Whether one is an ancestor of the other, or both are the same.
fn is_related(one: &Module, other: &Module) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The text without comments, literals and items for tests.
fn code_of(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let literal = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            end_of_string(rest)
        } else if first == '\'' {
            end_of_character(rest)
        } else {
            0
        };
        if literal == 0 {
            code.push(first);
        }
        rest = &rest[literal.max(first.len_utf8())..];
    }
    without_tests(&code)
}

fn end_of_string(text: &str) -> usize {
    let mut escaped = true;
    let end = text.char_indices().find(|(_, char)| {
        let ends = *char == '"' && !escaped;
        escaped = *char == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Length of a character literal; 0 for a lifetime.
fn end_of_character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |end| end + 4),
        Some(_) => chars.next().filter(|(_, char)| *char == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

/// Removes items that are compiled only for tests.
fn without_tests(code: &str) -> String {
    let mut left = String::new();
    let mut rest = code;
    while let Some((before, item)) = rest.split_once("#[cfg(test)]") {
        left.push_str(before);
        let ends = [item.find(';').map(|at| at + 1), item.find('{').map(|at| at + end_of_block(&item[at..]))];
        let opens_first = item.find('{').is_some_and(|brace| item.find(';').is_none_or(|end| brace < end));
        // `use a::{b, c};` contains braces before its end.
        let is_use = item.split_whitespace().find(|word| !word.starts_with("pub")).is_some_and(|word| word == "use");
        rest = &item[ends[usize::from(opens_first && !is_use)].unwrap_or(item.len())..];
    }
    left + rest
}

/// Length of a block that starts with a brace.
fn end_of_block(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, char) in text.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The modules that a module's code refers to.
fn imported(module: &Module, code: &str, modules: &BTreeMap<Module, PathBuf>) -> BTreeSet<Module> {
    let mut paths = Vec::new();
    let mut others = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let is_word = rest[..at].chars().next_back().is_none_or(|char| !char.is_alphanumeric() && char != '_');
        others.push_str(&rest[..at]);
        let end = if is_word { rest[at..].find(';').map_or(rest.len(), |end| at + end) } else { at + 4 };
        if is_word {
            expand(&rest[at + 4..end], &mut paths);
        }
        rest = &rest[end..];
    }
    others.push_str(rest);
    let is_part = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
    let words = others.split(|char: char| !is_part(char)).filter(|word| word.contains("::"));
    let inline = words.filter(|word| ["crate::", "self::", "super::"].iter().any(|start| word.starts_with(start)));
    paths.extend(inline.map(str::to_owned));
    paths.iter().filter_map(|path| resolve(module, path, modules)).collect()
}

/// The paths of a `use` declaration, with its braces expanded.
fn expand(tree: &str, paths: &mut Vec<String>) {
    let Some((prefix, inner)) = tree.split_once('{') else {
        paths.push(tree.split(" as ").next().unwrap_or(tree).split_whitespace().collect());
        return;
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let mut depth = 0usize;
    let parts = inner.split(|char| {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).for_each(|part| expand(&format!("{prefix}{}", part.trim()), paths));
}

/// The deepest module on a path, relative to a module; `None` for other crates and for the module
/// itself.
fn resolve(module: &Module, path: &str, modules: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let mut parts = path.split("::").peekable();
    let mut at = match *parts.peek()? {
        "crate" => Module::new(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        _ => module.clone(),
    };
    let first = parts.peek().copied()?;
    if ["crate", "self", "super"].contains(&first) {
        parts.next();
    } else if !modules.contains_key(&[&at[..], &[first.to_owned()]].concat()) {
        return None;
    }
    for part in parts {
        if part == "super" {
            at.pop()?;
            continue;
        }
        at.push(part.to_owned());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    (at != *module).then_some(at)
}

/// A cycle of imports, ending with its first module; `None` if there is none.
fn cycle(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    for start in imports.keys() {
        let mut way = Vec::new();
        if let Some(from) = visit(start, imports, &mut way, &mut done) {
            let again = way.iter().position(|module| *module == from)?;
            return Some(way[again..].iter().chain([&from]).map(|module| module.join("::")).collect());
        }
    }
    None
}

/// Follows imports from a module. Returns a module of the current path that is reached again.
fn visit(
    module: &Module,
    imports: &BTreeMap<Module, BTreeSet<Module>>,
    way: &mut Vec<Module>,
    done: &mut BTreeSet<Module>,
) -> Option<Module> {
    if way.contains(module) {
        return Some(module.clone());
    }
    if !done.insert(module.clone()) {
        return None;
    }
    way.push(module.clone());
    for other in imports.get(module).into_iter().flatten() {
        if let Some(again) = visit(other, imports, way, done) {
            return Some(again);
        }
    }
    way.pop();
    None
}

#[test]
fn cycles_are_found() {
    let graph = |edges: &[(&str, &str)]| {
        let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, to) in edges {
            imports.entry(vec![(*from).to_owned()]).or_default().insert(vec![(*to).to_owned()]);
        }
        cycle(&imports)
    };
    assert_eq!(graph(&[("a", "b"), ("a", "c"), ("b", "c")]), None);
    let found = graph(&[("a", "b"), ("b", "c"), ("c", "b")]).expect("b and c import each other");
    assert_eq!(found, ["b", "c", "b"]);
}

#[test]
fn imports_are_read_from_code() {
    let names = ["", "a", "a::b", "c"];
    let split = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Module>();
    let modules = names.iter().map(|name| (split(name), PathBuf::new())).collect();
    let source = r#"
        use super::{a::{b::X, Y as Z}};
        use std::fs;
        #[cfg(test)]
        mod tests { use crate::nothing; fn f() { "}" } }
        // use crate::comment;
        fn g(_: &'static str) -> char { crate::a::h("crate::text"); '"' }
    "#;
    let found = imported(&split("c"), &code_of(source), &modules);
    assert_eq!(found.iter().map(|module| module.join("::")).collect::<Vec<_>>(), ["a", "a::b"]);
}
