//! The areas of the rules: the folders of their files.

use schemas::problems::PROBLEMS;

use super::RULES;

/// The area of findings about the text itself.
pub const TEXT: &str = "text";

/// Every area with its module, whose first line is the area's description.
const MODULES: &[(&str, &str)] = &[
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
    MODULES
        .iter()
        .map(move |(area, list)| (*area, about(list)))
        .chain([(TEXT, "The text itself, and comments to spectune.")])
}

/// The area of a code.
pub fn area_of(code: &str) -> Option<&'static str> {
    let rule = RULES.iter().find(|rule| rule.code == code).map(|rule| rule.area);
    rule.or_else(|| PROBLEMS.iter().any(|problem| problem.code == code).then_some(TEXT))
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
            assert!(area == TEXT || RULES.iter().any(|rule| rule.area == area), "{area} has no rule");
            assert!(RULES.iter().all(|rule| rule.name != area));
        }
    }
}
