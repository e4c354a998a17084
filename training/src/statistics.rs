//! Intervals of accept lengths, bootstrapped over prompts: tokens of one text are correlated, so
//! whole texts are resampled.

use schemas::training_record::RatioInterval;

/// Number of bootstrap samples.
const DRAWINGS: usize = 4000;
/// Approximate probability that an interval contains the true ratio.
pub const COVERAGE: f64 = 0.95;

/// A stream of random numbers: SplitMix64, in which every output is a function of seed and index.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Numbers of output tokens and rounds of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Output tokens.
    pub tokens: u64,
    /// Verify rounds.
    pub rounds: u64,
}

impl Random {
    /// The stream for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The upper half of the product is as uniform as a remainder, without a division.
        ((u128::from(self.number()) * bound as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        // 53 bits, which a float64 represents exactly.
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        // Never 0, whose logarithm is infinite.
        let (a, b) = (1.0 - self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }

    /// A random permutation of `count` indices.
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.below(at + 1));
        }
        order
    }
}

/// Sum of tokens / sum of rounds; `None` without a round.
pub fn accept_length(counted: &[Counted]) -> Option<f64> {
    let (tokens, rounds) = sums(counted.iter());
    (rounds > 0).then(|| tokens as f64 / rounds as f64)
}

/// The ratio of accept lengths, after / before, on the same texts (paired), with a
/// percentile-bootstrap interval. With fewer than five texts the interval is infinite.
pub fn paired_ratio(before: &[Counted], after: &[Counted]) -> Option<RatioInterval> {
    let ratio = accept_length(after)? / accept_length(before)?;
    let count = before.len().min(after.len());
    let draw = |random: &mut Random| {
        let places: Vec<usize> = (0..count).map(|_| random.below(count)).collect();
        let pick = |from: &[Counted]| -> Vec<Counted> { places.iter().map(|at| from[*at]).collect() };
        Some(accept_length(&pick(after))? / accept_length(&pick(before))?)
    };
    Some(interval(ratio, count, draw))
}

/// The ratio of accept lengths, after / before, on different texts.
pub fn unpaired_ratio(before: &[Counted], after: &[Counted]) -> Option<RatioInterval> {
    let ratio = accept_length(after)? / accept_length(before)?;
    let draw = |random: &mut Random| {
        let pick = |random: &mut Random, from: &[Counted]| -> Vec<Counted> {
            (0..from.len()).map(|_| from[random.below(from.len())]).collect()
        };
        let (before, after) = (pick(random, before), pick(random, after));
        Some(accept_length(&after)? / accept_length(&before)?)
    };
    Some(interval(ratio, before.len().min(after.len()), draw))
}

fn interval(ratio: f64, texts: usize, draw: impl Fn(&mut Random) -> Option<f64>) -> RatioInterval {
    if texts < 5 {
        // JSON has no infinity, so the record's largest number stands for no upper end.
        return RatioInterval { ratio, low: 0.0, high: f64::MAX, coverage: 1.0 };
    }
    // A fixed seed, so that the same texts give the same interval.
    let mut random = Random::new(0x5eed);
    let mut drawn: Vec<f64> = (0..DRAWINGS).filter_map(|_| draw(&mut random)).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * drawn.len() as f64) as usize;
        drawn.get(place.min(drawn.len().saturating_sub(1))).copied().unwrap_or(ratio)
    };
    let tail = (1.0 - COVERAGE) / 2.0;
    RatioInterval { ratio, low: at(tail), high: at(1.0 - tail), coverage: COVERAGE }
}

fn sums<'a>(counted: impl Iterator<Item = &'a Counted>) -> (u64, u64) {
    counted.fold((0, 0), |(tokens, rounds), one| (tokens + one.tokens, rounds + one.rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tokens: u64, rounds: impl Iterator<Item = u64>) -> Vec<Counted> {
        rounds.map(|rounds| Counted { tokens, rounds }).collect()
    }

    #[test]
    fn an_interval_holds_what_is_and_leaves_out_what_is_not() {
        let before = texts(120, (0..40).map(|at| 50 + at % 7));
        let after = texts(120, (0..40).map(|at| 44 + (at * 3) % 7));
        let better = paired_ratio(&before, &after).expect("rounds");
        assert!(better.low > 1.05 && better.high < 1.25 && better.low < better.ratio && better.ratio < better.high);
        let same = paired_ratio(&before, &texts(120, (0..40).map(|at| 50 + (at * 3) % 7))).expect("rounds");
        assert!(same.low < 1.0 && same.high > 1.0, "{same:?}");
        assert_eq!(paired_ratio(&before, &before).map(|one| (one.low, one.high)), Some((1.0, 1.0)));
        let apart = unpaired_ratio(&before, &after[..30]).expect("rounds");
        assert!(apart.low > 1.0, "{apart:?}");
    }

    #[test]
    fn few_texts_tell_nothing() {
        let few = paired_ratio(&texts(9, 3..6), &texts(9, 2..5)).expect("rounds");
        assert_eq!((few.low, few.high), (0.0, f64::MAX));
        assert_eq!(paired_ratio(&[], &[]), None);
    }

    #[test]
    fn an_order_is_a_function_of_its_seed() {
        let mut sorted = Random::new(3).permutation(50);
        assert_eq!(sorted, Random::new(3).permutation(50));
        assert_ne!(sorted, Random::new(4).permutation(50));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
