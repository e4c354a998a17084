//! Selection of rules: `--select` and `--ignore`.

use schemas::{
    diagnostic::Diagnostic,
    engines::Engine,
    problems::PROBLEMS,
    text::{distance, shortened},
};

use super::{LintRule, RULES, area_of, areas};

/// Specificity of an area: more than a source of rules (`SD`), less than a row of the catalogue
/// (`SD02`).
const AREA: usize = 3;

/// The selected codes (default: all).
///
/// A selector is a code (`SD070`), a prefix of codes (`SD`, `SD07`), a name (`dtype-mismatch`), an
/// area (`graph`) or `ALL`. If both lists match, the longer selector wins (an area counts as three
/// letters); a tie goes to `ignore`.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    select: Vec<Selector>,
    ignore: Vec<Selector>,
    /// The engine of the server that runs the launches, if it is known.
    runs_on: Option<Engine>,
}

/// A selector in upper case, for comparison.
#[derive(Clone, Debug)]
pub(crate) struct Selector(String);

/// The error for a selector that selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{selector}' is not a rule's code or a prefix of one, a rule's name, or an area{}", suggested(.suggestion.as_deref()))]
pub struct SelectionError {
    /// As written.
    pub selector: String,
    /// The selector that was probably meant.
    pub suggestion: Option<String>,
}

fn suggested(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |suggestion| format!(" (did you mean '{suggestion}'?)"))
}

impl Selection {
    /// Creates a selection from two lists of selectors; an empty `select` means all. Commas and
    /// blanks separate selectors within a string.
    ///
    /// # Errors If a selector matches no rule and no problem of the text.
    pub fn new<S: AsRef<str>>(select: &[S], ignore: &[S]) -> Result<Self, SelectionError> {
        let read = |list: &[S]| -> Result<Vec<Selector>, SelectionError> {
            let words = list.iter().flat_map(|text| text.as_ref().split([',', ' ']));
            words.map(str::trim).filter(|word| !word.is_empty()).map(Selector::new).collect()
        };
        Ok(Self { select: read(select)?, ignore: read(ignore)?, runs_on: None })
    }

    /// The same for launches that a server of this engine runs. What SGLang would do with a launch
    /// of spectune's own engine, which takes SGLang's flags, is of use only where it may run there.
    #[must_use]
    pub fn of_server(self, engine: Option<Engine>) -> Self {
        Self { runs_on: engine, ..self }
    }

    /// Whether a rule is selected that is about launches of an engine.
    pub(super) fn admits_rule(&self, rule: &LintRule, engine: Engine) -> bool {
        let is_elsewhere = rule.is_of_other_engine(engine) && self.runs_on == Some(engine);
        self.admits(rule.code, rule.name) && rule.applies.covers(engine) && !is_elsewhere
    }

    /// Whether a text has only selectors that select something, or why not.
    ///
    /// # Errors
    /// If a selector matches no rule and no problem of the text.
    pub fn check(text: &str) -> Result<(), String> {
        Self::new(&[text], &[]).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Whether a code with this name is selected.
    pub fn admits(&self, code: &str, name: &str) -> bool {
        let longest = |list: &[Selector]| list.iter().filter_map(|selector| selector.matches(code, name)).max();
        let selected = if self.select.is_empty() { Some(0) } else { longest(&self.select) };
        match (selected, longest(&self.ignore)) {
            (Some(selected), Some(ignored)) => selected > ignored,
            (selected, None) => selected.is_some(),
            (None, Some(_)) => false,
        }
    }

    /// Whether a finding is selected, of a rule or about the text itself.
    pub fn admits_finding(&self, diagnostic: &Diagnostic) -> bool {
        self.admits(diagnostic.code, diagnostic.name)
    }
}

impl Selector {
    /// A selector that selects something.
    pub fn new(word: &str) -> Result<Self, SelectionError> {
        Self::known(word).map_err(|error| SelectionError { suggestion: nearest(word).map(str::to_owned), ..error })
    }

    /// As [`new`](Self::new), but an error contains no suggestion, which would cost a comparison
    /// with every name.
    pub fn known(word: &str) -> Result<Self, SelectionError> {
        let selector = Self(word.to_ascii_uppercase());
        if codes().any(|(code, name)| selector.matches(code, name).is_some()) {
            return Ok(selector);
        }
        Err(SelectionError { selector: shortened(word), suggestion: None })
    }

    /// The specificity of the match, if there is one.
    fn matches(&self, code: &str, name: &str) -> Option<usize> {
        if self.0 == "ALL" {
            return Some(0);
        }
        if name.eq_ignore_ascii_case(&self.0) {
            return Some(code.len());
        }
        if code.starts_with(&self.0) {
            return Some(self.0.len());
        }
        area_of(code).is_some_and(|area| area.eq_ignore_ascii_case(&self.0)).then_some(AREA)
    }

    /// The selector in upper case.
    pub fn key(&self) -> &str {
        &self.0
    }

    /// Whether a selection admits any code that this selector matches.
    pub fn is_looked_for(&self, selection: &Selection) -> bool {
        codes().any(|(code, name)| self.matches(code, name).is_some() && selection.admits(code, name))
    }
}

/// The keys of all selectors that match a code, most specific first.
pub(crate) fn keys(code: &str, name: &str) -> Vec<String> {
    let beginnings = (1..=code.len()).rev().filter_map(|length| code.get(..length)).map(str::to_owned);
    let area = area_of(code).map(str::to_ascii_uppercase);
    [name.to_ascii_uppercase()].into_iter().chain(beginnings).chain(area).chain(["ALL".to_owned()]).collect()
}

/// The code, name or area of which an invalid selector is a typo.
fn nearest(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_uppercase();
    let near = codes()
        .flat_map(|(code, name)| [code, name])
        .chain(areas().map(|(area, _)| area))
        .map(|known| (distance(&known.to_ascii_uppercase(), &word), known))
        .min()
        .filter(|(far, _)| *far <= 2);
    near.map(|(_, known)| known)
}

fn codes() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.code, rule.name)).chain(PROBLEMS.iter().map(|problem| (problem.code, problem.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_code_are_those_of_the_selectors_that_match() {
        for word in ["SD070", "SD0", "s", "dtype-mismatch", "dtype", "all", "SD08", "graph"] {
            let selector = Selector::new(word).expect("known");
            let matches = selector.matches("SD070", "dtype-mismatch").is_some();
            assert_eq!(keys("SD070", "dtype-mismatch").contains(&selector.key().to_owned()), matches, "{word}");
        }
    }

    fn check(select: &[&str], ignore: &[&str], expected: [bool; 3]) {
        let selection = Selection::new(select, ignore).expect("known selectors");
        let found = [("SD070", "dtype-mismatch"), ("SD023", "topk1-drafts-adjusted"), ("LT05", "missing-value")]
            .map(|(code, name)| selection.admits(code, name));
        assert_eq!(found, expected, "--select {select:?} --ignore {ignore:?}");
    }

    #[test]
    fn the_longer_selector_wins_and_a_tie_ignores() {
        check(&[], &[], [true, true, true]);
        check(&["SD"], &[], [true, true, false]);
        check(&["sd07"], &[], [true, false, false]);
        check(&["dtype-mismatch,LT"], &[], [true, false, true]);
        check(&[], &["SD070"], [false, true, true]);
        check(&["SD070"], &["SD"], [true, false, false]);
        check(&["SD"], &["SD02"], [true, false, false]);
        check(&["SD070"], &["dtype-mismatch"], [false, false, false]);
        check(&["ALL"], &["SD"], [false, false, true]);
        check(&["SD070"], &["ALL"], [true, false, false]);
        check(&["dtype"], &[], [true, false, false]);
        check(&[], &["Text", "tree"], [true, false, false]);
        check(&["tree"], &["SD"], [false, true, false]);
        check(&["tree"], &["SD02"], [false, false, false]);
    }

    #[test]
    fn what_selects_nothing_is_an_error_with_a_guess() {
        let error = Selection::new(&["dtype-missmatch"], &[]).expect_err("no such rule");
        assert_eq!(error.suggestion.as_deref(), Some("dtype-mismatch"));
        let error = Selection::new(&["grahp"], &[]).expect_err("no such area");
        assert_eq!(error.suggestion.as_deref(), Some("graph"));
        assert!(Selection::new(&["XX"], &[]).is_err());
        assert!(Selection::new(&[""], &[]).is_ok());
    }
}
