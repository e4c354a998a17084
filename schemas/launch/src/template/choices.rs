//! Which branches of a template are read together: blocks with the same condition have the same
//! outcome.

use std::collections::BTreeMap;

use super::{
    parts::{comparison, each_part, outcome, parts},
    statements::{BlockEffect, TemplateStatement, statements},
};
use crate::condition::LaunchCondition;

/// Maximum number of choices that are tried.
const MOST_CHOICES: usize = 64;
/// Maximum number of branches of a block that are read.
const MOST_BRANCHES: usize = 8;
/// Maximum number of blocks that are open in one another.
const DEEPEST: usize = 64;

/// What a block tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestedCondition {
    /// The condition without blanks around its words, and without `not`.
    condition: String,
    is_negated: bool,
    /// What it is made of, if it has several parts.
    parts: Option<LaunchCondition>,
}

/// The branches that are read: 0 is the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchChoice {
    /// Of blocks whose condition is not among the others; the first one of those that have fewer.
    number: usize,
    /// By condition. A block without this branch leaves nothing.
    by_condition: BTreeMap<String, usize>,
}

/// A condition in a text.
#[derive(Default)]
struct Uses {
    plain: bool,
    negated: bool,
    /// The largest number of further branches of a block with it.
    dividers: usize,
}

impl Uses {
    /// Whether the text uses the condition with `not` as well.
    fn is_both(&self) -> bool {
        self.plain && self.negated
    }

    /// The branches after the first one that differ: without the condition, what `not` guards.
    fn further_branches(&self) -> usize {
        if self.is_both() { self.dividers.max(1) } else { self.dividers }
    }
}

impl TestedCondition {
    /// The condition of the statement that opens a block: `{{ if .x }}`, `{% if not x %}`,
    /// `{{#unless x}}`.
    pub fn by(statement: &str) -> Option<Self> {
        let inside = statement.trim_matches(|letter: char| "{}%<>-+~#= ".contains(letter) || letter.is_whitespace());
        let (word, condition) = inside.split_once(char::is_whitespace)?;
        let words: Vec<&str> = condition.split_whitespace().collect();
        let is_unless = match word {
            "if" => false,
            "unless" => true,
            _ => return None,
        };
        let rest = words.join(" ");
        let (is_not, rest) = match rest.strip_prefix("not ") {
            // `not` of Jinja may be about the first of several parts only.
            Some(of) if !of.contains(' ') => (true, of),
            Some(of) => match in_parentheses(of).or_else(|| comparison(of).map(|_| of)) {
                Some(of) => (true, of),
                None => (false, rest.as_str()),
            },
            None => (false, in_parentheses(&rest).unwrap_or(&rest)),
        };
        let (condition, is_unequal) = comparison(rest).unwrap_or_else(|| (rest.to_owned(), false));
        let is_negated = (is_unless != is_not) != is_unequal;
        let parts = parts(condition.as_str());
        (!rest.is_empty()).then_some(Self { condition, is_negated, parts })
    }
}

/// What one pair of parentheses contains.
fn in_parentheses(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('(')?.strip_suffix(')')?;
    (!inside.contains(['(', ')'])).then(|| inside.trim())
}

impl BranchChoice {
    #[cfg(test)]
    pub fn from_number(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// The branch of a block with this many dividers; `None` if it leaves nothing.
    pub fn branch(&self, tested: Option<&TestedCondition>, dividers: usize) -> Option<usize> {
        let chosen = tested.and_then(|tested| Some((tested, self.of_condition(tested)?)));
        let branch = match chosen {
            None => return Some(if self.number > dividers { 0 } else { self.number }),
            Some((tested, branch)) if tested.is_negated => usize::from(branch == 0),
            Some((_, branch)) => branch,
        };
        (branch <= dividers).then_some(branch)
    }

    /// The branch of a condition: what its parts say, or what is chosen for it as a whole.
    fn of_condition(&self, tested: &TestedCondition) -> Option<usize> {
        let holds = |part: &str| self.by_condition.get(part).map(|branch| *branch == 0);
        let by_parts = tested.parts.as_ref().and_then(|parts| outcome(parts, holds));
        by_parts.map(|holds| usize::from(!holds)).or_else(|| self.by_condition.get(&tested.condition).copied())
    }

    /// The first branches, in which conditions that a text uses with `not` as well hold.
    pub fn first(text: &str) -> Self {
        Self::first_of(&uses(text))
    }

    fn first_of(uses: &BTreeMap<String, Uses>) -> Self {
        let of_both = uses.iter().filter(|(_, uses)| uses.is_both());
        Self { number: 0, by_condition: of_both.map(|(condition, _)| (condition.clone(), 0)).collect() }
    }

    /// Further choices: the second branch of every block, the third one and so on, and the other
    /// branches of one condition at a time with the first ones of the rest.
    pub fn others(text: &str) -> Vec<Self> {
        let uses = uses(text);
        let first = Self::first_of(&uses);
        let most = uses.values().map(Uses::further_branches).max().unwrap_or_default().min(MOST_BRANCHES - 1);
        let further = |number: usize| {
            let with = uses.iter().filter(|(_, uses)| uses.further_branches() >= number);
            let mut choice = Self { number, ..first.clone() };
            choice.by_condition.extend(with.map(|(condition, _)| (condition.clone(), number)));
            choice
        };
        let mut all: Vec<Self> = (1..=most.max(MOST_BRANCHES / 2)).map(further).collect();
        let varied = uses.iter().filter(|(_, uses)| uses.further_branches() > 0);
        if varied.clone().count() > 1 {
            for (condition, uses) in varied {
                for branch in 1..=uses.further_branches() {
                    let mut choice = first.clone();
                    choice.by_condition.insert(condition.clone(), branch);
                    all.push(choice);
                }
            }
        }
        all.truncate(MOST_CHOICES);
        all
    }
}

/// The conditions of a text.
fn uses(text: &str) -> BTreeMap<String, Uses> {
    let mut found: BTreeMap<String, Uses> = BTreeMap::new();
    let mut open: Vec<(Option<TestedCondition>, usize)> = Vec::new();
    for TemplateStatement { span, effect, .. } in statements(text) {
        match effect {
            BlockEffect::Opens if open.len() < DEEPEST => {
                open.push((TestedCondition::by(text.get(span.range()).unwrap_or_default()), 0));
            }
            BlockEffect::Divides => {
                if let Some((_, dividers)) = open.last_mut() {
                    *dividers += 1;
                }
            }
            BlockEffect::Closes => {
                let Some((Some(tested), dividers)) = open.pop() else { continue };
                if let Some(parts) = &tested.parts {
                    each_part(parts, tested.is_negated, &mut |part, is_negated| {
                        let uses = found.entry(part.to_owned()).or_default();
                        uses.plain |= !is_negated;
                        uses.negated |= is_negated;
                    });
                }
                let uses = found.entry(tested.condition).or_default();
                uses.plain |= !tested.is_negated;
                uses.negated |= tested.is_negated;
                uses.dividers = uses.dividers.max(dividers);
            }
            BlockEffect::Opens | BlockEffect::Silent | BlockEffect::Output => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::branches::rendered, *};

    fn words(text: &str, choice: &BranchChoice) -> String {
        let found = rendered(text, false, choice).expect(text);
        found.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn check(text: &str, expected: &[&str]) {
        let all: Vec<String> = [BranchChoice::first(text)]
            .iter()
            .chain(&BranchChoice::others(text))
            .map(|choice| words(text, choice))
            .collect();
        let mut distinct: Vec<&str> = all.iter().map(String::as_str).collect();
        distinct.dedup();
        let mut seen: Vec<&str> = Vec::new();
        distinct.retain(|text| {
            !seen.contains(text) && {
                seen.push(text);
                true
            }
        });
        assert_eq!(distinct, expected, "{text}");
    }

    #[test]
    fn blocks_with_one_condition_have_one_outcome() {
        check("{% if a %}\nb\n{% else %}\nc\n{% endif %}\n{% if a %}\nd\n{% endif %}\n", &["b d", "c"]);
        check("{{ if .a }}\nb\n{{ end }}\n{{ if not .a }}\nc\n{{ end }}\n", &["b", "c"]);
        check("{{#if a}}\nb\n{{/if}}\n{{#unless a}}\nc\n{{/unless}}\n", &["b", "c"]);
    }

    #[test]
    fn opposite_comparisons_have_one_outcome() {
        for (condition, opposite) in [
            (r#"eq .a "b""#, r#"ne .a "b""#),
            (r#"eq .a "b""#, r#"not (eq .a "b")"#),
            ("(eq .a .b)", "ne .a .b"),
            ("a == b", "a != b"),
            ("a == b", "not a == b"),
        ] {
            let text =
                format!("{{{{ if {condition} }}}}\nb\n{{{{ end }}}}\n{{{{ if {opposite} }}}}\nc\n{{{{ end }}}}\n");
            check(&text, &["b", "c"]);
        }
        let tested = |text: &str| TestedCondition::by(text).map(|tested| (tested.condition, tested.is_negated));
        assert_ne!(tested("{% if a == b %}"), tested("{% if a == c %}"));
        assert_eq!(tested("{% if not (a != b) %}"), tested("{% if a == b %}"));
        // Several parts are kept as they are written.
        assert_eq!(tested("{% if not a == b and c %}"), Some(("not a == b and c".into(), false)));
        assert_eq!(tested("{% if a and b != c %}"), Some(("a and b != c".into(), false)));
    }

    #[test]
    fn parts_of_a_condition_have_one_outcome_too() {
        for (condition, opposite) in [
            ("a and b", "not a"),
            ("a and b != c", "b == c"),
            ("and .a .b", "not .a"),
            ("not a", "a and b"),
            ("and .a (eq .b \"c\")", "ne .b \"c\""),
        ] {
            let text =
                format!("{{{{ if {condition} }}}}\nb\n{{{{ end }}}}\n{{{{ if {opposite} }}}}\nc\n{{{{ end }}}}\n");
            let found = [BranchChoice::first(&text)].into_iter().chain(BranchChoice::others(&text));
            let mut found: Vec<String> = found.map(|choice| words(&text, &choice)).collect();
            found.sort();
            found.dedup();
            assert_eq!(found, ["b", "c"], "{text}");
        }
    }

    #[test]
    fn branches_of_different_conditions_are_combined() {
        let text = "{% if a %}\nb\n{% else %}\nc\n{% endif %}\n{% if d %}\ne\n{% else %}\nf\n{% endif %}\n";
        check(text, &["b e", "c f", "c e", "b f"]);
    }

    #[test]
    fn more_than_four_branches_are_read_up_to_a_limit() {
        let branches: String = (1..20).map(|number| format!("{{% elif n == {number} %}}\nb{number}\n")).collect();
        let text = format!("{{% if n == 0 %}}\nb0\n{branches}{{% endif %}}\n");
        let expected: Vec<String> = (0..MOST_BRANCHES).map(|number| format!("b{number}")).collect();
        check(&text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_condition_is_read_by_its_number() {
        assert_eq!(TestedCondition::by("{{- range .x }}"), None);
        assert_eq!(TestedCondition::by("{% if %}"), None);
        let both = TestedCondition::by("{% if not a and b %}").expect("a condition");
        assert!(!both.is_negated);
        check("{{ range .x }}\na\n{{ end }}\nb\n", &["a b"]);
    }
}
