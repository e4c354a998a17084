//! Rollouts: the requests of a step of reinforcement learning, all sent at once.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use schemas::sweep::LARGEST;
use serde::{Deserialize, Serialize};

use super::{SimulatedRequest, drafts::Drafts};

/// Maximum number of requests of a load: each is drawn before the first one starts.
pub const MOST_REQUESTS: usize = 1 << 20;
/// Maximum number of output tokens of a load, on average over draws: rounds are recorded.
pub const MOST_TOKENS: usize = 1 << 32;

/// A rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Number of prompts.
    pub prompts: usize,
    /// Samples of each prompt.
    pub samples: usize,
    /// Tokens of a prompt.
    pub prompt_tokens: usize,
    /// How long outputs are.
    pub lengths: OutputLengths,
    /// Requests that limit their drafts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<Limited>,
    /// Whether each request follows its text from the place that has the context of its prompt, so
    /// that acceptance depends on the context as in the trace, and not from a random place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_contexts: bool,
}

/// Requests that ask for fewer drafts than the policy would verify.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// Their share of all requests.
    pub share: f64,
    /// Their maximum number of drafts in a round; 0 for no speculation.
    pub most_drafts: usize,
}

/// How long outputs are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputLengths {
    /// Drawn from lengths that were recorded.
    Recorded(Vec<usize>),
    /// A log-normal distribution: most outputs are short, a few are many times longer.
    LongTail {
        /// Half of the outputs are shorter, in tokens.
        median: f64,
        /// Standard deviation of the logarithm: 1 means that one output in 44 is more than seven
        /// times the median.
        sigma: f64,
        /// Outputs are cut off here.
        most: usize,
    },
}

impl Default for OutputLengths {
    fn default() -> Self {
        Self::Recorded(Vec::new())
    }
}

impl Rollout {
    /// Number of requests.
    pub fn count(&self) -> usize {
        self.prompts.saturating_mul(self.samples)
    }

    /// Whether the requests can be drawn.
    ///
    /// # Errors
    /// In words, when there are too many of them, they are too long, or a number is impossible.
    pub fn check(&self) -> Result<(), String> {
        let Self { prompts, samples, prompt_tokens, .. } = self;
        let count = self.count();
        if !(1..=MOST_REQUESTS).contains(&count) {
            return Err(format!("{prompts} prompts × {samples} samples: expected 1 to {MOST_REQUESTS} requests"));
        }
        if *prompt_tokens > LARGEST {
            return Err(format!("prompts of {prompt_tokens} tokens: expected at most {LARGEST}"));
        }
        self.lengths.check()?;
        if self.limited.is_some_and(|limited| !(0.0..=1.0).contains(&limited.share)) {
            return Err("the share of requests that limit their drafts: expected 0 to 1".into());
        }
        let mean = self.lengths.mean();
        let tokens = count as f64 * mean;
        if tokens > MOST_TOKENS as f64 {
            return Err(format!(
                "{count} requests of {mean:.0} output tokens on average are {tokens:.0} tokens: expected at most \
                 {MOST_TOKENS}"
            ));
        }
        Ok(())
    }

    /// The requests of one draw. Samples of a prompt have the text of the prompt, at different
    /// positions unless contexts are kept.
    pub fn draw(&self, drafts: &Drafts, seed: u64) -> Vec<SimulatedRequest> {
        let mut random = StdRng::seed_from_u64(seed);
        // Separate, so that lengths and places are the same with and without limits.
        let mut chances = StdRng::seed_from_u64(!seed);
        let mut jobs = Vec::with_capacity(self.count());
        // Other chances in every draw, and of every request in it.
        let seed_of = |request: usize| (seed << 32) ^ request as u64;
        for _ in 0..self.prompts {
            let text = random.random_range(0..drafts.texts().max(1));
            for _ in 0..self.samples {
                let start = random.random_range(0..1 << 20);
                let output_tokens = self.lengths.draw(&mut random);
                let most_drafts = self.limited.filter(|limited| chances.random::<f64>() < limited.share);
                let most_drafts = most_drafts.map(|limited| limited.most_drafts);
                let prompt_tokens = self.prompt_tokens.max(1);
                let own = prompt_tokens.saturating_sub(drafts.prompt_tokens(text));
                let start = if self.keeps_contexts { own } else { start };
                let seed = seed_of(jobs.len());
                jobs.push(SimulatedRequest { prompt_tokens, output_tokens, text, start, seed, most_drafts });
            }
        }
        jobs
    }
}

impl OutputLengths {
    /// The largest output.
    pub fn most(&self) -> usize {
        match self {
            Self::Recorded(lengths) => lengths.iter().copied().max().unwrap_or(1).max(1),
            Self::LongTail { most, .. } => (*most).max(1),
        }
    }

    /// The mean length, in tokens.
    fn mean(&self) -> f64 {
        match self {
            Self::Recorded(lengths) => {
                (lengths.iter().map(|length| *length as f64).sum::<f64>() / lengths.len().max(1) as f64).max(1.0)
            }
            // Of a log-normal distribution; the cut makes it smaller.
            Self::LongTail { median, sigma, most } => (median * (sigma * sigma / 2.0).exp()).clamp(1.0, *most as f64),
        }
    }

    fn check(&self) -> Result<(), String> {
        let most = match self {
            Self::Recorded(_) => self.most(),
            // As given: a limit of 0 leaves no length to draw.
            Self::LongTail { most, .. } => *most,
        };
        if !(1..=LARGEST).contains(&most) {
            return Err(format!("outputs of up to {most} tokens: expected 1 to {LARGEST}"));
        }
        if let Self::LongTail { median, sigma, .. } = self
            && !(*median >= 1.0 && median.is_finite() && *sigma >= 0.0 && sigma.is_finite())
        {
            return Err(format!(
                "a median of {median} tokens with a tail of {sigma}: expected at least 1 and at least 0"
            ));
        }
        Ok(())
    }

    /// One length, at least 1.
    fn draw(&self, random: &mut StdRng) -> usize {
        match self {
            Self::Recorded(lengths) if lengths.is_empty() => 1,
            Self::Recorded(lengths) => lengths[random.random_range(0..lengths.len())].max(1),
            Self::LongTail { median, sigma, most } => {
                let (one, two): (f64, f64) = (random.random(), random.random());
                // Box and Muller's normal variate.
                let normal = (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos();
                ((median * (sigma * normal).exp()).round() as usize).clamp(1, (*most).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_median_and_a_long_tail() {
        let drafts = Drafts::golden(&[1.5]).expect("a length");
        let lengths = OutputLengths::LongTail { median: 1000.0, sigma: 1.0, most: 20_000 };
        let rollout = Rollout { prompts: 500, samples: 8, prompt_tokens: 100, lengths, ..Rollout::default() };
        let jobs = rollout.draw(&drafts, 1);
        let mut tokens: Vec<usize> = jobs.iter().map(|job| job.output_tokens).collect();
        tokens.sort_unstable();
        assert!((900..1100).contains(&tokens[2000]), "{}", tokens[2000]);
        let share = tokens.iter().filter(|tokens| **tokens as f64 > 7.39 * 1000.0).count() as f64 / 4000.0;
        assert!((share - 0.0228).abs() < 0.01 && tokens[3999] <= 20_000, "{share}");
        assert_eq!((jobs.clone(), jobs.len()), (rollout.draw(&drafts, 1), 4000));
        assert_ne!(jobs, rollout.draw(&drafts, 2));
        let half =
            Rollout { limited: Some(Limited { share: 0.5, most_drafts: 1 }), ..rollout.clone() }.draw(&drafts, 1);
        let limited = half.iter().filter(|job| job.most_drafts == Some(1)).count();
        assert!((1900..2100).contains(&limited), "{limited}");
        assert!(half.iter().zip(&jobs).all(|(half, job)| SimulatedRequest { most_drafts: None, ..*half } == *job));
        let recorded = Rollout { lengths: OutputLengths::Recorded(vec![5, 9]), ..rollout };
        assert!(recorded.draw(&drafts, 3).iter().all(|job| [5, 9].contains(&job.output_tokens)));
    }

    #[test]
    fn a_load_that_no_memory_holds_is_refused_with_its_numbers() {
        let lengths = |most| OutputLengths::LongTail { median: 1000.0, sigma: 1.0, most };
        let usual =
            Rollout { prompts: 64, samples: 8, prompt_tokens: 512, lengths: lengths(16_384), ..Rollout::default() };
        assert_eq!(usual.check(), Ok(()));
        assert_eq!(Rollout { prompts: MOST_REQUESTS, samples: 1, ..usual.clone() }.check(), Ok(()));
        let check = |rollout: Rollout, words: &str| {
            let found = rollout.check().expect_err(words);
            assert!(found.contains(words), "{found}");
        };
        check(Rollout { prompts: 100_000, samples: 100_000, ..usual.clone() }, "100000 prompts × 100000 samples");
        check(Rollout { prompts: usize::MAX, samples: 2, ..usual.clone() }, "expected 1 to 1048576 requests");
        check(Rollout { prompts: 0, ..usual.clone() }, "0 prompts");
        check(Rollout { prompt_tokens: usize::MAX, ..usual.clone() }, "prompts of");
        check(Rollout { lengths: lengths(LARGEST + 1), ..usual.clone() }, "outputs of up to 1048577");
        check(
            Rollout { lengths: OutputLengths::Recorded(vec![1, LARGEST + 1]), ..usual.clone() },
            "outputs of up to 1048577",
        );
        check(Rollout { lengths: lengths(0), ..usual.clone() }, "outputs of up to 0 tokens: expected 1 to");
        let long = OutputLengths::Recorded(vec![LARGEST]);
        check(Rollout { prompts: 1 << 16, lengths: long, ..usual.clone() }, "output tokens on average");
        let nothing = OutputLengths::LongTail { median: f64::NAN, sigma: 1.0, most: 5 };
        check(Rollout { lengths: nothing, ..usual }, "a median of NaN");
    }
}
