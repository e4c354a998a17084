//! Whose drafts are accepted, and whose passes are timed: figures of two kinds of draft do not
//! belong together.

use schemas::model::DraftKind;

use super::times::StepTimes;

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
            Self::Steps => (kind == DraftKind::Block).then_some("a draft that runs a pass for each step"),
            Self::Unknown => None,
        }
    }
}

/// A warning if the times of steps are those of another kind of draft than the one whose drafts
/// are accepted. `algorithm` is its name; `None` if it is not known.
pub fn warning(algorithm: Option<&str>, times: &StepTimes) -> Option<String> {
    let kind = DraftKind::from_algorithm(algorithm?)?;
    let other = TimedDraft::from_times(times).other_than(kind)?;
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
    use crate::forecast::costs::{DraftCosts, NAMES, StepCosts};

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
            // Look-ups have no pass, and of an unknown draft nothing can be said.
            assert_eq!((warning(Some("NGRAM"), &times), warning(None, &times)), (None, None));
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
