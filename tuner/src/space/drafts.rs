//! The space of a sweep of several drafts: their spaces side by side.

use super::{Candidate, Expanded};
use crate::trials::record::CandidateRole;

/// A draft that takes no part, since it cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub draft: String,
    /// Why.
    pub reason: String,
}

/// The spaces of named drafts as one. No speculation is one configuration that all of them share;
/// the engine's default for each draft is a baseline. Baselines come first, then the rest; settings
/// and drafts, which need a restart, vary slowest.
pub fn together(parts: Vec<(String, Expanded)>, left_out: Vec<LeftOut>) -> Expanded {
    let mut all = Expanded { left_out, ..Expanded::default() };
    for (draft, mut part) in parts {
        for one in part.entrants.iter_mut().filter(|one| !one.configuration.is_off()) {
            one.configuration.draft.clone_from(&draft);
        }
        for one in part.entrants {
            if !all.entrants.contains(&one) {
                all.entrants.push(one);
            }
        }
        all.dropped.extend(part.dropped);
        all.same_tree.extend(part.same_tree);
        all.uncovered.extend(part.uncovered);
    }
    // The sorts are stable: drafts keep the order of the file.
    let order = |one: &Candidate| match one.role {
        CandidateRole::NoSpeculation => 0,
        CandidateRole::EngineDefault => 1,
        CandidateRole::Current => 2,
        CandidateRole::Candidate | CandidateRole::Probe => 3,
    };
    all.entrants.sort_by_key(order);
    all.entrants.sort_by_key(|one| !one.configuration.knobs.are_default());
    all
}

impl Expanded {
    /// Removes a draft that turned out not to load.
    pub fn leave_out(&mut self, draft: &str, reason: &str) {
        self.entrants.retain(|one| one.configuration.draft != draft);
        self.left_out.push(LeftOut { draft: draft.to_owned(), reason: reason.to_owned() });
    }

    /// A sentence for each draft that takes no part.
    pub(super) fn drafts_left_out(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|LeftOut { draft, reason }| format!("draft {draft} takes no part: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use schemas::{
        sweep::{KnobLists, Space},
        tree::{NodeSource, TreeShape},
    };

    use super::*;
    use crate::space::expand;

    #[test]
    fn drafts_share_no_speculation_and_nothing_else() {
        let knobs = KnobLists { page_size: vec![16], ..KnobLists::default() };
        let part = |shape: &str, default| {
            let space = Space { shapes: vec![shape.into()], ..Space::default() };
            expand(&space, &knobs, &[], NodeSource::Beams, default)
        };
        let parts = vec![
            ("one".into(), part("2,1,3", TreeShape::chain(4))),
            ("two".into(), part("1,1,2", TreeShape::chain(4))),
        ];
        let mut all = together(parts, Vec::new());
        let names: Vec<String> = all.entrants.iter().map(|one| one.configuration.to_string()).collect();
        assert_eq!(
            names,
            [
                "no speculation",
                "one 4,1,5",
                "two 4,1,5",
                "one 2,1,3",
                "two 1,1,2",
                "no speculation page_size=16",
                "one 4,1,5 page_size=16",
                "one 2,1,3 page_size=16",
                "two 4,1,5 page_size=16",
                "two 1,1,2 page_size=16",
            ]
        );
        let defaults = all.entrants.iter().filter(|one| one.role == CandidateRole::EngineDefault).count();
        assert_eq!(defaults, 2);
        all.leave_out("one", "no such file");
        assert_eq!(all.skipped(), ["draft one takes no part: no such file"]);
        assert_eq!(all.entrants.len(), 6);
    }
}
