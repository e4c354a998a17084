//! The SGLang server whose adaptive steps are simulated.

use schemas::{adaptive::IgnoredKey, engines::NEWEST_SGLANG, tree::TreeShape, version::EngineVersion};

use super::{SimulationPlan, candidate};
use crate::{
    TunerError,
    forecast::{
        policy::sglang::{Adaptive, AdaptiveSettings},
        study::PolicyCandidate,
    },
};

/// A launch of SGLang with `--speculative-adaptive`.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveLaunch {
    version: EngineVersion,
    settings: AdaptiveSettings,
    start: usize,
    ignored: Vec<IgnoredKey>,
    /// Whether the user says anything of it, so that it must not be left out.
    is_given: bool,
}

impl Default for AdaptiveLaunch {
    /// The newest known version without a file.
    fn default() -> Self {
        let settings = AdaptiveSettings::default();
        let start = settings.default_start();
        Self { version: NEWEST_SGLANG, settings, start, ignored: Vec::new(), is_given: false }
    }
}

impl AdaptiveLaunch {
    /// A launch of a version with these settings, the keys of their file that SGLang ignores, and
    /// its number of steps, if it states one.
    ///
    /// # Errors
    /// In words, if SGLang refuses the steps.
    pub fn new(
        version: EngineVersion,
        settings: AdaptiveSettings,
        ignored: Vec<IgnoredKey>,
        start: Option<usize>,
    ) -> Result<Self, String> {
        let start = start.unwrap_or_else(|| settings.default_start());
        Ok(Self { version, settings: settings.launched(start)?, start, ignored, is_given: true })
    }

    /// The number of steps with which the server starts.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The rule over those of its candidates that are known, with notes; `None` if none are.
    fn known(&self, knows: impl Fn(usize) -> bool) -> Option<(Adaptive, Vec<String>)> {
        let Self { version, start, .. } = self;
        let mut settings = self.settings.clone();
        for slot in &mut settings.slots {
            slot.candidates.retain(|steps| knows(*steps));
        }
        settings.slots.retain(|slot| !slot.candidates.is_empty());
        let rule = Adaptive::new(settings.clone(), *start)?;
        let mut notes = vec![match *version > NEWEST_SGLANG {
            true => {
                format!("sglang: {version} is not known yet: the rule of {NEWEST_SGLANG}, launched with {start} steps")
            }
            false => format!("sglang: the rule of {version}, launched with {start} steps"),
        }];
        if settings != self.settings {
            notes.push(format!(
                "sglang: only candidates of known acceptance take part ({:?} of {:?} steps)",
                settings.candidates(),
                self.settings.candidates()
            ));
        }
        if !self.ignored.is_empty() {
            let keys: Vec<String> = self.ignored.iter().map(ToString::to_string).collect();
            notes.push(format!("sglang: SGLang ignores of the adaptive file: {}", keys.join(", ")));
        }
        Some((rule, notes))
    }
}

impl SimulationPlan {
    /// SGLang's rule over those of its candidates whose acceptance is known.
    pub(super) fn sglang<'a>(
        &'a self,
        all: &mut Vec<PolicyCandidate<'a>>,
        notes: &mut Vec<String>,
    ) -> Result<(), TunerError> {
        let Some((rule, more)) = self.adaptive.known(|steps| self.drafts.knows(TreeShape::chain(steps))) else {
            let reason = "no chain's acceptance is known: trace one (topk 1)";
            self.refuse_given(&["sglang"], reason)?;
            if self.adaptive.is_given {
                return Err(TunerError::Configuration(format!("SGLang's rule cannot run: {reason}")));
            }
            notes.push("sglang: left out, no chain's acceptance is known".into());
            return Ok(());
        };
        notes.extend(more);
        all.push(candidate("sglang", move || rule.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_without_acceptance_are_left_out_and_named() {
        let text = r#"{"1": {"candidate_steps": [1, 3, 7]}, "8": {"candidate_steps": [7], "why": 1}}"#;
        let launch = |version: &str, start| {
            let version = version.parse().expect("a version");
            let (settings, ignored) = AdaptiveSettings::parse(text, version).expect("a file");
            AdaptiveLaunch::new(version, settings, ignored, start)
        };
        let (rule, notes) = launch("0.5.22", Some(7)).expect("it starts").known(|steps| steps < 7).expect("chains");
        // The slot from 8 on has no known candidate, and the other one starts in its middle.
        assert_eq!([rule.steps(1), rule.steps(64)], [3, 3]);
        for words in
            ["0.5.22, launched with 7 steps", "([1, 3] of [1, 3, 7] steps)", "`why` in the slot from batch 8 on"]
        {
            assert!(notes.iter().any(|note| note.contains(words)), "{notes:?}");
        }
        let (_, notes) = launch("0.9.0", None).expect("it starts").known(|_| true).expect("chains");
        assert!(notes[0].contains("0.9.0 is not known yet: the rule of 0.5.23, launched with 3 steps"), "{notes:?}");
        assert!(launch("0.5.22", None).expect("it starts").known(|_| false).is_none());
        assert!(launch("0.5.22", Some(2)).expect_err("no candidate").contains("[1, 3, 7]"));
    }
}
