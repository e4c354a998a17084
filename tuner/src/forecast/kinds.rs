//! Whose drafts are accepted, and whose passes are timed: figures of two kinds of draft do not
//! belong together.

use schemas::{model::DraftKind, tree::NodeSource};

use super::{costs::DraftCosts, times::StepTimes};

/// A draft that is no block head, in words.
const PASS_PER_STEP: &str = "a draft that runs a pass for each step";

/// The draft whose passes the times of steps contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimedDraft {
    Kind(DraftKind),
    /// Any kind but a block head: it runs a pass for each step.
    Steps,
    Unknown,
}

impl TimedDraft {
    fn from_times(times: &StepTimes) -> Self {
        match times {
            StepTimes::Fitted(times) => times.draft.map_or(Self::Unknown, Self::Kind),
            StepTimes::Sum(costs) => match (costs.draft.kind, costs.draft.block) {
                (Some(kind), _) => Self::Kind(kind),
                (None, Some(_)) => Self::Kind(DraftKind::Block),
                (None, None) => Self::Steps,
            },
        }
    }

    /// In words, if they are not those of this kind.
    fn other_than(self, kind: DraftKind) -> Option<&'static str> {
        match self {
            Self::Kind(timed) => (timed != kind).then(|| timed.words()),
            Self::Steps => (kind == DraftKind::Block).then_some(PASS_PER_STEP),
            Self::Unknown => None,
        }
    }

    /// In words, if they have passes of a draft at all.
    fn passes(self, times: &StepTimes) -> Option<&'static str> {
        let is_free = |draft: DraftCosts| draft.pass_ms + draft.row_ms + draft.context_ms <= 0.0;
        if times.costs().is_some_and(|costs| is_free(costs.draft)) {
            return None;
        }
        match self {
            Self::Kind(timed) => Some(timed.words()),
            Self::Steps => Some(PASS_PER_STEP),
            Self::Unknown => None,
        }
    }
}

/// A warning if the times of steps are those of another kind of draft than the one whose drafts
/// are accepted. `algorithm` is its name; `None` if it is not known.
pub fn warning(algorithm: Option<&str>, times: &StepTimes) -> Option<String> {
    let (algorithm, timed) = (algorithm?.to_ascii_uppercase(), TimedDraft::from_times(times));
    if matches!(NodeSource::named(&algorithm), NodeSource::Text(_)) {
        let passes = timed.passes(times)?;
        return Some(format!(
            "what is accepted is looked up in texts ({algorithm}), but the times of steps contain the passes of {passes} \
             ({}): a look-up runs none, so give --times whose costs of the draft are 0",
            times.source()
        ));
    }
    let kind = DraftKind::from_algorithm(&algorithm)?;
    let other = timed.other_than(kind)?;
    Some(format!(
        "what is accepted is drafted by {}, but the times of steps are those of {other} ({}): a pass takes another time, \
         so give --times of this kind of draft",
        kind.words(),
        times.source()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::costs::{NAMES, StepCosts};

    #[test]
    fn every_pair_of_kinds_that_differ_is_warned_about_and_no_other() {
        let algorithms = ["EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK", "STANDALONE"];
        for (name, source, costs) in NAMES {
            let times = StepTimes::from(StepCosts::named(name).expect("a machine"));
            for algorithm in algorithms {
                let kind = DraftKind::from_algorithm(algorithm);
                let found = warning(Some(algorithm), &times);
                assert_eq!(found.is_some(), kind != costs.kind, "{algorithm} with {name}");
                assert!(found.is_none_or(|found| found.contains(source) && found.contains("--times")));
            }
            // Of an unknown draft nothing can be said.
            assert_eq!(warning(None, &times), None);
        }
    }

    #[test]
    fn passes_are_warned_about_where_drafts_are_looked_up() {
        let machine = StepCosts::named("llama-3.1-8b-eagle3-h200").expect("a machine");
        let free =
            DraftCosts { pass_ms: 0.0, row_ms: 0.0, context_ms: 0.0, prefill_token_ms: 0.0, block: None, kind: None };
        let without = StepTimes::from(StepCosts { draft: free, ..machine.clone() });
        let times = StepTimes::from(machine);
        for algorithm in ["NGRAM", "ngram", "SUFFIX", "PROMPT_LOOKUP"] {
            let found = warning(Some(algorithm), &times).expect(algorithm);
            assert!(found.contains("looked up") && found.contains("an EAGLE-3 head"), "{found}");
            assert_eq!(warning(Some(algorithm), &without), None);
        }
    }

    #[test]
    fn a_file_without_a_kind_has_that_of_its_block() {
        let machine = StepCosts::named("llama-3.1-8b-block8-h200").expect("a machine");
        let times = |block| {
            let draft = DraftCosts { kind: None, block, ..machine.draft };
            StepTimes::from(StepCosts { draft, ..machine.clone() })
        };
        let warns = |algorithm, block| warning(Some(algorithm), &times(block)).is_some();
        assert_eq!([warns("DSPARK", Some(8)), warns("DSPARK", None)], [false, true]);
        assert_eq!([warns("EAGLE3", Some(8)), warns("EAGLE3", None)], [true, false]);
    }
}
