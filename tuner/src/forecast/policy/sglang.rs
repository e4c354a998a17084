//! SGLang's adaptive steps (`--speculative-adaptive`), by version.
//!
//! A slot of candidate steps belongs to a range of padded batch sizes; before 0.5.13 there is one
//! for all batches. Each slot keeps a moving average of the accepted drafts of a round (mean over
//! the batch, without bonus token), which starts at its steps − 1 and does not change while the
//! slot runs 0 steps. After the warm-up, at every update, the slot moves down while the average is
//! at most the previous candidate − 0.5 (0.5 for 0 steps) + `down_hysteresis`, and up while it is
//! above the current candidate − 0.5 + `up_hysteresis`; since 0.5.14 not in the same update.
//! `ceiling_coeff` × average limits what has not moved up. From 0 steps a slot tries the next
//! candidate at every update.
//!
//! Results are read a round late where the engine launches a round before it reads the last one.
//! [`AdaptiveRule`] is what differs between versions; `decisions.rs` compares the rule with
//! decisions of the engine's own classes.

use schemas::{
    adaptive::{self, AdaptiveError, AdaptiveFileSlot, AdaptiveMoves, IgnoredKey},
    chain_tables::NoTable,
    tree::TreeShape,
    version::EngineVersion,
};

use super::{Policy, RoundChoice, View};

/// The steps with which a slot starts that does not have the launch's among its candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptiveStart {
    /// The nearest candidate, the larger one of two.
    Nearest,
    /// The launch's steps become a candidate.
    Added,
    /// The middle candidate.
    Middle,
}

/// What differs between versions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveRule {
    /// The first version with this rule.
    pub since: EngineVersion,
    /// How slots start.
    pub start: AdaptiveStart,
    /// The fewest candidates of a slot.
    pub least_candidates: usize,
    /// Whether an update that has moved down may move up again, as before 0.5.14.
    pub rises_after_fall: bool,
    /// Whether a round's result is read after the next one has been launched.
    pub is_late: bool,
    /// (smallest padded batch, candidates, `down_hysteresis`) without a file.
    pub default_slots: &'static [(usize, &'static [usize], f64)],
}

/// `down_hysteresis` where neither a file nor the default slots say another.
const DOWN_HYSTERESIS: f64 = -0.25;

/// The rules, ascending by version.
pub const RULES: [AdaptiveRule; 5] = [
    AdaptiveRule {
        since: EngineVersion::new(0, 5, 11),
        start: AdaptiveStart::Nearest,
        least_candidates: 2,
        rises_after_fall: true,
        is_late: false,
        default_slots: &[(1, &[1, 3, 7], DOWN_HYSTERESIS)],
    },
    AdaptiveRule {
        since: EngineVersion::new(0, 5, 12),
        start: AdaptiveStart::Added,
        least_candidates: 2,
        rises_after_fall: true,
        is_late: true,
        default_slots: &[(1, &[1, 3, 7], DOWN_HYSTERESIS)],
    },
    AdaptiveRule {
        since: EngineVersion::new(0, 5, 13),
        start: AdaptiveStart::Middle,
        least_candidates: 1,
        rises_after_fall: true,
        is_late: true,
        default_slots: &[(1, &[1, 3, 7], DOWN_HYSTERESIS), (8, &[1, 3], 0.0), (32, &[1], 0.0)],
    },
    AdaptiveRule {
        since: EngineVersion::new(0, 5, 14),
        start: AdaptiveStart::Middle,
        least_candidates: 1,
        rises_after_fall: false,
        is_late: true,
        default_slots: &[(1, &[1, 3, 7], DOWN_HYSTERESIS), (8, &[0, 1, 3], 0.0), (32, &[0, 1], 0.0), (64, &[0], 0.0)],
    },
    AdaptiveRule {
        since: EngineVersion::new(0, 5, 20),
        start: AdaptiveStart::Middle,
        least_candidates: 1,
        rises_after_fall: false,
        is_late: true,
        default_slots: &[
            (1, &[1, 3, 5, 7], DOWN_HYSTERESIS),
            (8, &[0, 1, 3], 0.0),
            (32, &[0, 1], 0.0),
            (64, &[0], 0.0),
        ],
    },
];

impl AdaptiveRule {
    /// The rule of a version; that of the newest known one for newer versions.
    ///
    /// # Errors
    /// If the version has none.
    pub fn in_version(version: EngineVersion) -> Result<Self, NoTable> {
        let known = RULES.iter().rev().find(|rule| rule.since <= version).copied();
        known.ok_or(NoTable::SglangNotAdaptive(version))
    }
}

/// The settings of a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveSlotSettings {
    /// The smallest padded batch.
    pub batch: usize,
    /// Candidate steps, ascending and each once.
    pub candidates: Vec<usize>,
    /// Weight of the newest round in the average.
    pub ema_alpha: f64,
    /// Rounds before the first interval.
    pub warmup_batches: usize,
    /// Rounds between updates.
    pub update_interval: usize,
    /// Added to the bound below which the slot moves down.
    pub down_hysteresis: f64,
    /// Added to the bound above which the slot moves up.
    pub up_hysteresis: f64,
    /// The steps may not exceed this many times the average, if it is above 0.
    pub ceiling_coeff: f64,
}

impl AdaptiveSlotSettings {
    fn new(batch: usize, candidates: Vec<usize>, moves: &AdaptiveMoves) -> Self {
        Self {
            batch,
            candidates,
            ema_alpha: moves.ema_alpha.unwrap_or(0.2),
            warmup_batches: moves.warmup_batches.unwrap_or(10),
            update_interval: moves.update_interval.unwrap_or(5),
            down_hysteresis: moves.down_hysteresis.unwrap_or(DOWN_HYSTERESIS),
            up_hysteresis: moves.up_hysteresis.unwrap_or(0.0),
            ceiling_coeff: moves.ceiling_coeff.unwrap_or(0.0),
        }
    }
}

/// The settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveSettings {
    /// What its version does.
    pub rule: AdaptiveRule,
    /// Slots, ascending by batch.
    pub slots: Vec<AdaptiveSlotSettings>,
}

impl Default for AdaptiveSettings {
    /// Those of the newest known version without a file.
    fn default() -> Self {
        Self::from_rule(RULES[RULES.len() - 1])
    }
}

impl AdaptiveSettings {
    fn from_rule(rule: AdaptiveRule) -> Self {
        let slot = |(batch, candidates, down): &(usize, &[usize], f64)| {
            let moves = AdaptiveMoves { down_hysteresis: Some(*down), ..AdaptiveMoves::default() };
            AdaptiveSlotSettings::new(*batch, candidates.to_vec(), &moves)
        };
        Self { rule, slots: rule.default_slots.iter().map(slot).collect() }
    }

    /// The settings of a version without a file.
    ///
    /// # Errors
    /// If the version does not adapt.
    pub fn in_version(version: EngineVersion) -> Result<Self, NoTable> {
        AdaptiveRule::in_version(version).map(Self::from_rule)
    }

    /// The settings of a version with a file, and the keys of it that SGLang ignores.
    ///
    /// # Errors
    /// If the version refuses the file or does not adapt.
    pub fn parse(text: &str, version: EngineVersion) -> Result<(Self, Vec<IgnoredKey>), AdaptiveError> {
        let rule = AdaptiveRule::in_version(version)?;
        let file = adaptive::parse(text, version)?;
        let slot = |AdaptiveFileSlot { batch, candidate_steps, moves }| {
            // Only a file with one list may leave it out.
            let default = || rule.default_slots[0].1.to_vec();
            let candidates = if candidate_steps.is_empty() { default() } else { candidate_steps };
            AdaptiveSlotSettings::new(batch, candidates, &moves)
        };
        Ok((Self { rule, slots: file.slots.into_iter().map(slot).collect() }, file.ignored))
    }

    /// All candidates, ascending.
    pub fn candidates(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.slots.iter().flat_map(|slot| slot.candidates.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The steps of a launch that does not state them: the middle of all candidates. Before 0.5.14
    /// launches have to state them.
    pub fn default_start(&self) -> usize {
        let all = self.candidates();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    /// The settings of a launch with this number of steps.
    ///
    /// # Errors
    /// In words, if SGLang refuses that number.
    pub fn launched(mut self, start: usize) -> Result<Self, String> {
        if self.rule.start == AdaptiveStart::Added {
            for slot in &mut self.slots {
                let at = slot.candidates.partition_point(|steps| *steps < start);
                if slot.candidates.get(at) != Some(&start) {
                    slot.candidates.insert(at, start);
                }
            }
        }
        let all = self.candidates();
        if self.rule.start == AdaptiveStart::Middle && !all.contains(&start) {
            return Err(format!("{start} is none of the candidate steps {all:?}: give one of them"));
        }
        match self.slots.iter().find(|slot| slot.candidates.len() < self.rule.least_candidates) {
            Some(slot) => Err(format!(
                "the candidate steps are {:?}, and this version needs at least {}: add one to the file",
                slot.candidates, self.rule.least_candidates
            )),
            None => Ok(self),
        }
    }
}

/// The state of the rule.
#[derive(Clone, Debug)]
pub struct Adaptive {
    settings: AdaptiveSettings,
    slots: Vec<AdaptiveSlot>,
    /// The padded batch and the accepted drafts of a round whose result has not been read.
    unread: Option<(usize, Vec<usize>)>,
}

#[derive(Clone, Copy, Debug)]
struct AdaptiveSlot {
    /// Index of the current candidate.
    at: usize,
    average: f64,
    rounds: usize,
}

impl Adaptive {
    /// A server that was launched with this number of steps ([`AdaptiveSettings::launched`]).
    /// Candidates and slots must be ascending; `None` without slots or with a slot without
    /// candidates.
    pub fn new(settings: AdaptiveSettings, start: usize) -> Option<Self> {
        let sound = |slot: &AdaptiveSlotSettings| {
            !slot.candidates.is_empty() && slot.candidates.is_sorted() && slot.update_interval > 0
        };
        let is_sorted = settings.slots.is_sorted_by_key(|slot| slot.batch);
        if settings.slots.is_empty() || !settings.slots.iter().all(sound) || !is_sorted {
            return None;
        }
        let slot = |slot: &AdaptiveSlotSettings| {
            let candidates = &slot.candidates;
            let nearest = || {
                let distance = |(_, steps): &(usize, &usize)| (steps.abs_diff(start), std::cmp::Reverse(**steps));
                candidates.iter().enumerate().min_by_key(distance).map_or(0, |(at, _)| at)
            };
            let at = candidates.iter().position(|steps| *steps == start).unwrap_or_else(|| match settings.rule.start {
                AdaptiveStart::Nearest => nearest(),
                AdaptiveStart::Added | AdaptiveStart::Middle => candidates.len() / 2,
            });
            AdaptiveSlot { at, average: candidates[at] as f64 - 1.0, rounds: 0 }
        };
        Some(Self { slots: settings.slots.iter().map(slot).collect(), unread: None, settings })
    }

    /// The slot with the largest key that is not above a padded batch.
    fn slot(&self, padded: usize) -> usize {
        // A batch below all keys runs in the first slot.
        self.settings.slots.partition_point(|slot| slot.batch <= padded).saturating_sub(1)
    }

    /// The steps at a padded batch.
    pub fn steps(&self, padded: usize) -> usize {
        let slot = self.slot(padded);
        self.settings.slots[slot].candidates[self.slots[slot].at]
    }

    /// The averages of all slots.
    pub fn averages(&self) -> impl Iterator<Item = f64> {
        self.slots.iter().map(|slot| slot.average)
    }

    /// Reads the result of a round at a padded batch: the accepted drafts of each request.
    pub fn update(&mut self, padded: usize, accepted: &[usize]) {
        if accepted.is_empty() {
            return;
        }
        let number = self.slot(padded);
        let (settings, slot) = (&self.settings.slots[number], &mut self.slots[number]);
        if settings.candidates[slot.at] > 0 {
            let mean = accepted.iter().sum::<usize>() as f64 / accepted.len() as f64;
            slot.average = (1.0 - settings.ema_alpha) * slot.average + settings.ema_alpha * mean;
        }
        slot.rounds += 1;
        let after = slot.rounds.saturating_sub(settings.warmup_batches);
        if after > 0 && after.is_multiple_of(settings.update_interval) {
            slot.move_within(settings, self.settings.rule);
        }
    }
}

impl AdaptiveSlot {
    /// Moves to another candidate if the average says so.
    fn move_within(&mut self, settings: &AdaptiveSlotSettings, rule: AdaptiveRule) {
        let candidates = settings.candidates.as_slice();
        let (before, last) = (self.at, candidates.len() - 1);
        if candidates[before] == 0 {
            self.at = (before + 1).min(last);
            if candidates[self.at] > 0 && self.average < 0.0 {
                self.average = candidates[self.at] as f64 - 1.0;
            }
            return;
        }
        let down = |steps: usize| if steps == 0 { 0.5 } else { steps as f64 - 0.5 } + settings.down_hysteresis;
        while self.at > 0 && self.average <= down(candidates[self.at - 1]) {
            self.at -= 1;
        }
        let up = |steps: usize| steps as f64 - 0.5 + settings.up_hysteresis;
        if self.at == before || rule.rises_after_fall {
            while self.at < last && self.average > up(candidates[self.at]) {
                self.at += 1;
            }
        }
        // The ceiling lowers what has not moved up.
        if settings.ceiling_coeff > 0.0 && self.at <= before {
            let ceiling = (self.average * settings.ceiling_coeff).ceil().max(1.0);
            while self.at > 0 && candidates[self.at] as f64 > ceiling {
                self.at -= 1;
            }
        }
    }
}

impl Policy for Adaptive {
    fn choose(&mut self, view: &View<'_>) -> RoundChoice {
        let steps = self.steps(view.padded);
        // The round is launched, and then the last one's result is read.
        if let Some((padded, accepted)) = self.unread.take() {
            self.update(padded, &accepted);
        }
        RoundChoice::Shape(TreeShape::chain(steps))
    }

    fn learn(&mut self, view: &View<'_>, accepted: &[usize]) {
        if self.settings.rule.is_late {
            self.unread = Some((view.padded, accepted.to_vec()));
        } else {
            self.update(view.padded, accepted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps after each of some rounds of two requests that accept as many together.
    fn after(rule: &mut Adaptive, batch: usize, both: usize, rounds: usize) -> Vec<usize> {
        let mut steps = Vec::new();
        for _ in 0..rounds {
            rule.update(batch, &[both, 0]);
            steps.push(rule.steps(batch));
        }
        steps
    }

    #[test]
    fn decisions_follow_the_average_by_hand() {
        let mut rule = Adaptive::new(AdaptiveSettings::default(), 3).expect("slots");
        assert_eq!((AdaptiveSettings::default().candidates(), rule.steps(1)), (vec![0, 1, 3, 5, 7], 3));
        // The average starts at 2 and after n rounds of mean 3 is 3 − 0.8^n: above 2.5 from the
        // fourth round on. The first update comes after 10 + 5 rounds: 2.965 is above 3 − 0.5, and
        // not above 5 − 0.5.
        assert_eq!(after(&mut rule, 1, 6, 15), [[3; 14].as_slice(), &[5]].concat());
        // Five rounds of 5: 5 − 2.035·0.8^5 = 4.333, not above 4.5. Ten: 4.781, up to 7.
        assert_eq!(after(&mut rule, 2, 10, 10), [[5; 9].as_slice(), &[7]].concat());
        // Without accepted drafts: 4.781·0.8^5 = 1.567, below 5 − 0.75 and 3 − 0.75, but not 1 −
        // 0.75: down two at once.
        assert_eq!(after(&mut rule, 7, 0, 5), [7, 7, 7, 7, 3]);
        // 1.567·0.8^10 = 0.168 is at most 0.25.
        assert_eq!(after(&mut rule, 7, 0, 10), [[3; 9].as_slice(), &[1]].concat());
    }

    #[test]
    fn slots_are_apart_and_no_speculation_probes_upward() {
        let mut rule = Adaptive::new(AdaptiveSettings::default(), 3).expect("slots");
        // The slots from 32 and 64 on lack 3 steps and start in their middle.
        assert_eq!([rule.steps(1), rule.steps(8), rule.steps(31), rule.steps(32), rule.steps(64)], [3, 3, 3, 1, 0]);
        // One candidate: nothing to probe.
        assert_eq!(after(&mut rule, 64, 0, 20), [0; 20]);
        assert_eq!(rule.steps(8), 3, "another slot has not moved");
        // A slot that starts at 0 tries the next candidate at the first update, with an average as
        // if it had started there. Five rounds without accepted drafts keep it at 0, which is at
        // most 0.5: back to 0 steps.
        let mut rule = Adaptive::new(AdaptiveSettings::default(), 0).expect("slots");
        assert_eq!(after(&mut rule, 8, 0, 20)[13..], [0, 1, 1, 1, 1, 1, 0]);
        let empty = AdaptiveSlotSettings::new(1, Vec::new(), &AdaptiveMoves::default());
        assert!(Adaptive::new(AdaptiveSettings { slots: vec![empty], ..AdaptiveSettings::default() }, 3).is_none());
        assert_eq!(AdaptiveSettings::default().default_start(), 3);
    }

    /// Where rounds overlap, a decision knows the rounds before the last one.
    #[test]
    fn results_are_read_a_round_late_since_0_5_12() {
        let steps = |version: &str| {
            let version = version.parse().expect("a version");
            let (settings, _) = AdaptiveSettings::parse(
                r#"{"candidate_steps": [1, 3], "warmup_batches": 0, "update_interval": 1, "ema_alpha": 1,
                    "1": {"candidate_steps": [1, 3]}}"#,
                version,
            )
            .expect("a file");
            let mut rule = Adaptive::new(settings, 3).expect("slots");
            let view =
                View { requests: &[0], batch: 1, padded: 1, context: 0.0, prefilling: 0, completing: 0, prefilled: 0 };
            let mut steps = Vec::new();
            for accepted in [0, 1, 1] {
                let RoundChoice::Shape(shape) = rule.choose(&view) else { panic!("a chain") };
                steps.push(shape.num_steps);
                rule.learn(&view, &[accepted]);
            }
            steps
        };
        assert_eq!(steps("0.5.11"), [3, 1, 3]);
        assert_eq!(steps("0.5.12"), [3, 3, 1]);
        assert_eq!(steps("0.5.23"), [3, 3, 1]);
    }

    #[test]
    fn versions_have_their_rules_and_refuse_what_they_refuse() {
        let of = |text: &str| AdaptiveRule::in_version(text.parse().expect("a version"));
        assert_eq!(of("0.5.12.post1"), Ok(RULES[1]));
        assert_eq!(of("0.5.19"), Ok(RULES[3]));
        assert_eq!(of("0.6.0"), Ok(RULES[4]));
        assert!(of("0.5.10").expect_err("too old").to_string().contains("0.5.11 is the first version"));
        let launched = |text: &str, start| {
            AdaptiveSettings::in_version(text.parse().expect("a version")).expect("it adapts").launched(start)
        };
        assert!(launched("0.5.13", 5).expect_err("no candidate").contains("none of the candidate steps [1, 3, 7]"));
        assert_eq!(launched("0.5.12", 5).expect("it is added").candidates(), [1, 3, 5, 7]);
        let nearest = Adaptive::new(launched("0.5.11", 5).expect("the nearest"), 5).expect("slots");
        assert_eq!(nearest.steps(1), 7, "the larger one of two");
        let (one, _) = AdaptiveSettings::parse(r#"{"candidate_steps": [3]}"#, RULES[1].since).expect("a file");
        assert!(one.launched(3).expect_err("one").contains("needs at least 2"));
    }
}
