//! The areas of the rules: the folders of their files.

use std::{collections::HashMap, sync::OnceLock};

use schemas::problems::PROBLEMS;

use super::RULES;

/// The area of findings about the text itself.
pub const TEXT: &str = "text";

/// Every area with the list of its rules' files, which defines the area of each rule. The first line of each list is
/// the area's description.
const LISTS: &[(&str, &str)] = &[
    ("algorithm", include_str!("algorithm.rs")),
    ("context", include_str!("context.rs")),
    ("dtype", include_str!("dtype.rs")),
    ("graph", include_str!("graph.rs")),
    ("hidden", include_str!("hidden.rs")),
    ("memory", include_str!("memory.rs")),
    ("sampling", include_str!("sampling.rs")),
    ("scheduler", include_str!("scheduler.rs")),
    ("slime", include_str!("slime.rs")),
    ("tree", include_str!("tree.rs")),
    ("vllm", include_str!("vllm.rs")),
    ("vocabulary", include_str!("vocabulary.rs")),
];

/// Every area with a one-line description.
pub fn areas() -> impl Iterator<Item = (&'static str, &'static str)> {
    let about = |list: &'static str| list.lines().next().unwrap_or_default().trim_start_matches("//!").trim();
    LISTS
        .iter()
        .map(move |(area, list)| (*area, about(list)))
        .chain([(TEXT, "The text itself, and comments to spectune.")])
}

/// The area of a code.
pub fn area_of(code: &str) -> Option<&'static str> {
    static AREAS: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    AREAS.get_or_init(all).get(code).copied()
}

fn all() -> HashMap<&'static str, &'static str> {
    let files = LISTS.iter().flat_map(|(area, list)| {
        let names = list.lines().filter_map(|line| line.trim_start_matches("pub(super) ").strip_prefix("mod "));
        names.map(move |name| (name.split('_').next().unwrap_or_default().to_ascii_uppercase(), *area))
    });
    let files: HashMap<String, &'static str> = files.collect();
    let rules = RULES.iter().filter_map(|rule| Some((rule.code, *files.get(rule.code)?)));
    rules.chain(PROBLEMS.iter().map(|problem| (problem.code, TEXT))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_area() {
        for rule in RULES {
            assert!(area_of(rule.code).is_some(), "{} lies in no area of the list", rule.code);
        }
        assert_eq!((area_of("SD081"), area_of("LT02"), area_of("SD")), (Some("graph"), Some(TEXT), None));
    }

    #[test]
    fn an_area_has_rules_and_words_and_no_rule_has_its_name() {
        for (area, about) in areas() {
            assert!(about.len() > 10 && about.ends_with('.'), "{area}: {about}");
            assert!(all().values().any(|own| *own == area), "{area} has no rule");
            assert!(RULES.iter().all(|rule| rule.name != area));
        }
    }
}
