//! Conditions of programs: what a branch says of the values of variables. Readers translate what
//! they understand of a condition; what it means for a value is decided here alone.

/// Maximum number of tests that are kept of one condition.
const MOST_TESTS: usize = 32;

/// A condition of a script or a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LaunchCondition {
    /// Nothing is known of it.
    #[default]
    Unknown,
    Constant(bool),
    Test(TestedVariable, Test),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// The variable that a test is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestedVariable {
    pub name: String,
    /// The text that replaces it where it has no value: `${NAME:-default}`.
    pub default: Option<String>,
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is this text.
    Equals(String),
    /// It matches a pattern of a shell with `*` and `?`.
    Matches(String),
    /// It is a number in this relation to another one.
    Number(Relation, i64),
    IsEmpty,
    /// Python's: it is neither empty nor zero, `False` or `None`.
    IsTruthy,
    /// Anything else about it.
    Other,
}

/// A relation of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Less,
    LessOrEqual,
}

/// What must be so of one variable in a branch: a condition about it alone, and whether that holds
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub variable: TestedVariable,
    condition: LaunchCondition,
    holds: bool,
}

/// What a fact makes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refined {
    /// The value agrees with it.
    Same,
    /// It can only be this text.
    Is(String),
    /// It is another one than the text gives.
    Another,
}

impl Test {
    /// Whether it is true of a value; `None` if that is not known.
    fn is_true_of(&self, value: &str) -> Option<bool> {
        match self {
            Self::Equals(text) => Some(value == text),
            Self::Matches(pattern) => matches(pattern.as_bytes(), value.as_bytes()),
            Self::Number(relation, number) => {
                let value: i64 = value.trim().parse().ok()?;
                Some(match relation {
                    Relation::Equal => value == *number,
                    Relation::Less => value < *number,
                    Relation::LessOrEqual => value <= *number,
                })
            }
            Self::IsEmpty => Some(value.is_empty()),
            Self::IsTruthy => Some(!matches!(value, "" | "0" | "0.0" | "False" | "None")),
            Self::Other => None,
        }
    }
}

impl Fact {
    /// What it makes of a value; `None` is one that is not known.
    pub fn refine(&self, value: Option<&str>) -> Refined {
        let outcome = value.map(|value| self.condition.outcome(&|_| Some(value.to_owned())));
        match (outcome, &self.condition) {
            (Some(Some(outcome)), _) if outcome == self.holds => Refined::Same,
            (_, LaunchCondition::Test(_, Test::Equals(text))) if self.holds => Refined::Is(text.clone()),
            (None, _) => Refined::Same,
            // The known value contradicts the branch, so in it the variable must have been changed.
            (Some(_), _) => Refined::Another,
        }
    }
}

impl LaunchCondition {
    /// A comparison of a variable with the text of a number, by a sign of C; `is_swapped` where the
    /// number is on the left.
    pub fn comparison(variable: TestedVariable, sign: &str, text: &str, is_swapped: bool) -> Self {
        let Ok(number) = text.parse::<i64>() else { return Self::Test(variable, Test::Other) };
        let sign = match (sign, is_swapped) {
            ("<", true) => ">",
            (">", true) => "<",
            ("<=", true) => ">=",
            (">=", true) => "<=",
            (sign, _) => sign,
        };
        let (relation, holds) = match sign {
            "==" => (Relation::Equal, true),
            "!=" => (Relation::Equal, false),
            "<" => (Relation::Less, true),
            ">=" => (Relation::Less, false),
            "<=" => (Relation::LessOrEqual, true),
            ">" => (Relation::LessOrEqual, false),
            _ => return Self::Test(variable, Test::Other),
        };
        let test = Self::Test(variable, Test::Number(relation, number));
        if holds { test } else { test.negated() }
    }

    pub fn negated(self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Constant(value) => Self::Constant(!value),
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    /// Both conditions.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All(mut parts), other) => {
                parts.push(other);
                Self::All(parts).bounded()
            }
            (one, other) => Self::All(vec![one, other]).bounded(),
        }
    }

    /// One of the conditions.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any(mut parts), other) => {
                parts.push(other);
                Self::Any(parts).bounded()
            }
            (one, other) => Self::Any(vec![one, other]).bounded(),
        }
    }

    fn bounded(self) -> Self {
        // Each branch adds the tests of those before it, so a long chain would grow with its
        // square.
        if self.size() > MOST_TESTS { Self::Unknown } else { self }
    }

    fn size(&self) -> usize {
        match self {
            Self::Unknown | Self::Constant(_) | Self::Test(..) => 1,
            Self::Not(inner) => 1 + inner.size(),
            Self::All(parts) | Self::Any(parts) => 1 + parts.iter().map(Self::size).sum::<usize>(),
        }
    }

    /// Whether it holds for the values that are known.
    pub fn outcome(&self, value_of: &dyn Fn(&TestedVariable) -> Option<String>) -> Option<bool> {
        let any = |parts: &[Self], wanted: bool| {
            let outcomes: Vec<Option<bool>> = parts.iter().map(|part| part.outcome(value_of)).collect();
            match () {
                () if outcomes.contains(&Some(wanted)) => Some(wanted),
                () if outcomes.iter().all(|outcome| *outcome == Some(!wanted)) => Some(!wanted),
                () => None,
            }
        };
        match self {
            Self::Unknown => None,
            Self::Constant(value) => Some(*value),
            Self::Test(variable, test) => test.is_true_of(&value_of(variable)?),
            Self::Not(inner) => inner.outcome(value_of).map(|outcome| !outcome),
            Self::All(parts) => any(parts, false),
            Self::Any(parts) => any(parts, true),
        }
    }

    /// What is certain of single variables where it holds, or where it does not.
    pub fn facts(&self, holds: bool) -> Vec<Fact> {
        match self {
            Self::Not(inner) => inner.facts(!holds),
            // If a conjunction fails, it is not known which of its parts does.
            Self::All(parts) if holds => parts.iter().flat_map(|part| part.facts(true)).collect(),
            Self::Any(parts) if !holds => parts.iter().flat_map(|part| part.facts(false)).collect(),
            _ => {
                let variable = self.variable().cloned();
                variable.map(|variable| Fact { variable, condition: self.clone(), holds }).into_iter().collect()
            }
        }
    }

    /// The variable that all of it is about, if there is one.
    fn variable(&self) -> Option<&TestedVariable> {
        match self {
            Self::Unknown | Self::Constant(_) => None,
            Self::Test(variable, _) => Some(variable),
            Self::Not(inner) => inner.variable(),
            Self::All(parts) | Self::Any(parts) => {
                let (first, rest) = parts.split_first()?;
                let variable = first.variable()?;
                rest.iter().all(|part| part.variable() == Some(variable)).then_some(variable)
            }
        }
    }
}

/// Whether a text matches a pattern with `*` and `?`; `None` for a pattern with other signs of a
/// shell.
fn matches(pattern: &[u8], text: &[u8]) -> Option<bool> {
    if pattern.iter().any(|byte| matches!(byte, b'[' | b'(' | b'\\' | b'|')) {
        return None;
    }
    let (mut at, mut in_text) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_text));
                at += 1;
            }
            Some(byte) if *byte == b'?' || Some(byte) == text.get(in_text) => {
                at += 1;
                in_text += 1;
            }
            _ => {
                let Some((star_at, from)) = star else { return Some(false) };
                // Only the last star is tried again, which keeps the search linear for each star.
                star = Some((star_at, from + 1));
                (at, in_text) = (star_at + 1, from + 1);
            }
        }
    }
    Some(pattern.iter().skip(at).all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, test: Test) -> LaunchCondition {
        LaunchCondition::Test(TestedVariable { name: name.to_owned(), default: None }, test)
    }

    /// What the facts of a condition make of a value of `N`.
    fn refined(condition: &LaunchCondition, holds: bool, value: Option<&str>) -> Refined {
        let facts = condition.facts(holds);
        let of_n = facts.iter().filter(|fact| fact.variable.name == "N").map(|fact| fact.refine(value));
        of_n.fold(Refined::Same, |known, new| if known == Refined::Same { new } else { known })
    }

    #[test]
    fn a_value_that_a_condition_excludes_is_another_one() {
        let is_zero = || test("N", Test::Equals("0".into()));
        assert_eq!(refined(&is_zero(), false, Some("0")), Refined::Another);
        assert_eq!(refined(&is_zero(), false, Some("3")), Refined::Same);
        assert_eq!(refined(&is_zero(), false, None), Refined::Same);
        assert_eq!(refined(&is_zero(), true, Some("3")), Refined::Is("0".into()));
        assert_eq!(refined(&is_zero().negated(), true, Some("0")), Refined::Another);
        let is_positive = test("N", Test::Number(Relation::LessOrEqual, 0)).negated();
        assert_eq!(refined(&is_positive, true, Some("0")), Refined::Another);
        assert_eq!(refined(&is_positive, true, Some("2")), Refined::Same);
        // What cannot be compared is not the value that the condition speaks of.
        assert_eq!(refined(&is_positive, true, Some("x")), Refined::Another);
    }

    #[test]
    fn parts_that_must_hold_say_something_each() {
        let other = || test("M", Test::IsEmpty);
        let is_empty = || test("N", Test::IsEmpty);
        assert_eq!(refined(&other().and(is_empty().negated()), true, Some("")), Refined::Another);
        assert_eq!(refined(&other().or(is_empty()), false, Some("")), Refined::Another);
        assert_eq!(refined(&other().or(is_empty().negated()), true, Some("")), Refined::Same);
        // Several tests of one variable are one fact about it.
        let named = |name: &str| test("N", Test::Equals(name.to_owned()));
        let either = named("a").or(named("b"));
        assert_eq!(refined(&either, true, Some("b")), Refined::Same);
        assert_eq!(refined(&either, true, Some("c")), Refined::Another);
        assert_eq!(refined(&either, false, Some("b")), Refined::Another);
    }

    #[test]
    fn outcomes_need_the_values_that_decide() {
        let value_of = |variable: &TestedVariable| (variable.name == "N").then(|| "0".to_owned());
        let known = || test("N", Test::IsTruthy);
        assert_eq!(known().outcome(&value_of), Some(false));
        assert_eq!(known().and(LaunchCondition::Unknown).outcome(&value_of), Some(false));
        assert_eq!(known().or(LaunchCondition::Unknown).outcome(&value_of), None);
        assert_eq!(known().negated().outcome(&value_of), Some(true));
        assert_eq!(test("M", Test::IsEmpty).outcome(&value_of), None);
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("*", "", Some(true)),
            ("mtp*", "mtp-3", Some(true)),
            ("*-mtp", "x", Some(false)),
            ("a?c*e", "abcde", Some(true)),
            ("a*b*c", "a-b-b", Some(false)),
            ("[yY]*", "y", None),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn long_conditions_are_not_kept() {
        let many = (0..100).fold(LaunchCondition::Constant(true), |all, _| all.and(test("N", Test::IsEmpty)));
        assert!(many.size() <= MOST_TESTS, "{}", many.size());
    }
}
