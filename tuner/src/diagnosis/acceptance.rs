//! What the acceptance of drafts costs, and what to change about it.

use external::log::LoggedSettings;

use super::{DiagnosisFinding, LoadFigures, Promise, flags::Flags};

/// A position accepted in a smaller share of rounds hardly pays for its row.
const RARELY: f64 = 0.1;

/// Trees are not deeper: a log that says so is damaged.
const DEEPEST: usize = 1024;

/// Fewer accepted tokens than were promised.
pub fn short(main: &LoadFigures, promise: Promise) -> Option<DiagnosisFinding> {
    let (promised, found) = (promise.accept_length?, main.accept_length?);
    (found < 0.95 * promised).then(|| DiagnosisFinding {
        what: format!("{found:.2} tokens a round are accepted where {promised:.2} were promised"),
        change: "check what the promise was measured with: temperature 0, the chat template that the head was trained on, \
                 the same target in the same precision, as many drafts, texts of this kind; then `spectune drift`, or a head \
                 of your own texts (`spectune train`)"
            .into(),
    })
}

/// Drafts of which too few are accepted: the last positions, or all.
pub fn late_positions(main: &LoadFigures, settings: &LoggedSettings, flags: &Flags) -> Option<DiagnosisFinding> {
    let shares = Shares::from_figures(main, settings)?;
    let useful = shares.by_position.iter().take_while(|share| **share >= RARELY).count();
    let all = shares.by_position.len();
    let rarely = format!("under {:.0}% of the rounds", 100.0 * RARELY);
    if useful == 0 {
        return Some(DiagnosisFinding {
            what: match main.accept_length {
                Some(length) => format!(
                    "hardly any draft is accepted: {length:.2} tokens per round, where no speculation has 1; the first \
                     draft in {rarely}"
                ),
                None => format!("hardly any draft is accepted: the first one in {rarely}"),
            },
            change: format!(
                "check that the draft was trained for this target and its chat template, and that both are the checkpoints \
                 that you mean; if they are, use another draft (`spectune train` adapts one to your texts), {} 1, or no \
                 speculation (without {})",
                flags.drafts, flags.speculation
            ),
        });
    }
    let is_tree = settings.topk.is_some_and(|topk| topk > 1);
    (useful < all).then(|| {
        let lost = shares.lost(useful, main.accept_length);
        DiagnosisFinding {
            what: format!(
                "of {all} drafts the last {} accepted in {rarely} (position {}: {}{:.1}%)",
                match all - useful {
                    1 => "one is".to_owned(),
                    several => format!("{several} are"),
                },
                useful + 1,
                if shares.are_measured { "" } else { "at most " },
                100.0 * shares.by_position[useful]
            ),
            change: match is_tree {
                true => format!(
                    "{} {useful}, and a tree of fewer nodes: fewer passes and rows; the positions cost {lost}, and fewer \
                     nodes can cost more: worth it if rounds become shorter by more than that",
                    flags.drafts
                ),
                false => format!(
                    "{} {useful}: fewer rows, for {lost}: worth it if rounds become shorter by more than that",
                    flags.drafts
                ),
            },
        }
    })
}

/// The share of rounds in which each position of a path is accepted.
struct Shares {
    by_position: Vec<f64>,
    /// Whether the engine reports them; else they are upper bounds.
    are_measured: bool,
}

impl Shares {
    /// Engines that report the accept length alone: a position is accepted only if those before it
    /// are, so position k has at most a k-th of all accepted drafts.
    fn from_figures(main: &LoadFigures, settings: &LoggedSettings) -> Option<Self> {
        if !main.positions.is_empty() {
            return Some(Self { by_position: main.positions.clone(), are_measured: true });
        }
        let accepted = (main.accept_length? - 1.0).max(0.0);
        // Without branches per step (look-ups, block heads) the flag does not set the depth.
        let steps = settings.num_steps.filter(|steps| (1..=DEEPEST).contains(steps));
        let depth = steps.filter(|_| settings.topk.is_some()).unwrap_or(1);
        let by_position = (1..=depth).map(|position| accepted / position as f64).collect();
        Some(Self { by_position, are_measured: false })
    }

    /// The tokens per round that the positions after the first `kept` yield, in words:
    /// `0.078 of 1.60 tokens per round (5%)`. An upper bound if only an accept length is known.
    fn lost(&self, kept: usize, accept_length: Option<f64>) -> String {
        let all = self.by_position.len();
        let (bound, lost, length) = if self.are_measured {
            let length = accept_length.unwrap_or_else(|| 1.0 + self.by_position.iter().sum::<f64>());
            ("", self.by_position[kept..].iter().sum::<f64>(), length)
        } else {
            // The last positions yield the most if all are accepted equally often.
            let length = accept_length.unwrap_or(1.0);
            ("at most ", (length - 1.0).max(0.0) * (all - kept) as f64 / all as f64, length)
        };
        format!("{bound}{lost:.3} of {length:.2} tokens per round ({:.0}%)", 100.0 * lost / length.max(1.0))
    }
}
