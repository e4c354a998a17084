//! The router of an expert layer: from logits to the experts of each row and their weights.
//!
//! Semantics as in the published models' own code: Qwen3-MoE (softmax over all experts, the weights
//! optionally divided by their sum), GLM-4.5 and DeepSeek-V3 (sigmoid, a correction that affects
//! the selection only, selection limited to groups of experts, weights divided by their sum and
//! scaled). Everything is float32: a correction at an offset of 7 keeps only 8 values in bfloat16.

use super::{exp::exp, select::top_k};

/// How a logit becomes a score between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each expert's logit.
    Sigmoid,
}

/// The settings of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Router {
    /// From logits to scores.
    pub scoring: Scoring,
    /// Experts per row.
    pub top_k: usize,
    /// Groups of equal size into which the experts are divided, in order of ids; 1 if all experts
    /// compete.
    pub groups: usize,
    /// Groups from which the experts of a row may come.
    pub top_k_groups: usize,
    /// Divide the weights of a row by their sum plus this value; `None` uses the scores as weights.
    pub renormalize: Option<f32>,
    /// Factor on the weights, after the division.
    pub scale: f32,
    /// Measure only: experts are chosen by [`uniform_logits`] in place of the logits, without a
    /// correction.
    pub uniform: bool,
}

/// The experts of some rows: `[rows, top_k]` each, in ascending order of expert ids within a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    /// Experts per row.
    pub top_k: usize,
    /// Expert ids.
    pub experts: Vec<u32>,
    /// Factors on the experts' outputs.
    pub weights: Vec<f32>,
}

impl Router {
    /// Routes rows of logits, `[rows, experts]`. `correction` (one value per expert) is added to
    /// the scores for the selection and does not enter the weights.
    ///
    /// Ties go to the lowest id, for experts and groups. A group's rank is the sum of its two
    /// largest corrected scores, where two equal scores both count (torch's `topk(2)`); experts of
    /// other groups are excluded, whatever their score. The sum of the weights is in ascending
    /// order of ids. NaN loses against every number.
    ///
    /// # Panics
    /// When the settings do not fit the number of experts: see [`fits`](Self::fits).
    pub fn route(&self, logits: &[f32], experts: usize, correction: Option<&[f32]>) -> Routes {
        assert!(self.fits(experts), "{self:?} does not fit {experts} experts");
        assert!(logits.len().is_multiple_of(experts), "rows of {experts} logits");
        let mut routes = Routes { top_k: self.top_k, experts: Vec::new(), weights: Vec::new() };
        for logits in logits.chunks_exact(experts) {
            let (scores, correction) = match self.uniform {
                true => (self.scoring.scores(&uniform_logits(logits)), None),
                false => (self.scoring.scores(logits), correction),
            };
            let mut chosen = self.select(&scores, correction);
            chosen.sort_unstable();
            let mut weights: Vec<f32> = chosen.iter().map(|expert| scores[*expert]).collect();
            if let Some(extra) = self.renormalize {
                let sum = weights.iter().fold(0.0, |sum, weight| sum + weight) + extra;
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
            routes.weights.extend(weights.iter().map(|weight| weight * self.scale));
            routes.experts.extend(chosen.iter().map(|expert| *expert as u32));
        }
        routes
    }

    /// Whether routing is possible: groups have equal sizes, and the kept groups contain enough
    /// experts.
    pub fn fits(&self, experts: usize) -> bool {
        let Self { top_k, groups, top_k_groups, .. } = *self;
        (1..=experts).contains(&groups)
            && experts.is_multiple_of(groups)
            && (1..=groups).contains(&top_k_groups)
            && (1..=top_k_groups * (experts / groups)).contains(&top_k)
    }

    fn select(&self, scores: &[f32], correction: Option<&[f32]>) -> Vec<usize> {
        let mut ranks = scores.to_vec();
        if let Some(correction) = correction {
            assert_eq!(correction.len(), scores.len(), "one correction an expert");
            ranks.iter_mut().zip(correction).for_each(|(rank, correction)| *rank += correction);
        }
        if self.top_k_groups < self.groups {
            let size = scores.len() / self.groups;
            let best_two = |group: &[f32]| top_k(group, 2).iter().fold(0.0, |sum, (_, rank)| sum + rank);
            let sums: Vec<f32> = ranks.chunks_exact(size).map(best_two).collect();
            let kept: Vec<usize> = top_k(&sums, self.top_k_groups).into_iter().map(|(group, _)| group).collect();
            // Excluded experts must not be candidates: with rank −∞ they would tie with kept ones
            // of rank −∞.
            let kept_experts = (0..scores.len()).filter(|expert| kept.contains(&(expert / size)));
            let (ids, ranks): (Vec<usize>, Vec<f32>) = kept_experts.map(|expert| (expert, ranks[expert])).unzip();
            return top_k(&ranks, self.top_k).into_iter().map(|(at, _)| ids[at]).collect();
        }
        top_k(&ranks, self.top_k).into_iter().map(|(expert, _)| expert).collect()
    }
}

/// Pseudo-random logits of a row, uniform in `[0, 1)`: a hash of the bits of its logits. Rows whose
/// logits differ choose independently, and all experts equally often, whatever their weights; the
/// choice of a row does not depend on the other rows.
pub fn uniform_logits(logits: &[f32]) -> Vec<f32> {
    let of_expert = |at: usize| (at as u32 + 1).wrapping_mul(GOLDEN);
    let all = logits.iter().enumerate();
    let row = all.fold(0, |row, (at, logit)| row ^ mixed(logit.to_bits().wrapping_add(of_expert(at))));
    (0..logits.len()).map(|at| (mixed(row ^ of_expert(at)) >> 8) as f32 / (1 << 24) as f32).collect()
}

/// 2³² over the golden ratio: multiples of it are spread evenly.
const GOLDEN: u32 = 0x9e37_79b9;

/// The finaliser of MurmurHash3: each bit of the result depends on all bits.
fn mixed(bits: u32) -> u32 {
    let bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    let bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}

impl Scoring {
    /// Scores of a row of logits.
    pub fn scores(self, logits: &[f32]) -> Vec<f32> {
        match self {
            Self::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + exp(-logit))).collect(),
            Self::Softmax => {
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let powers: Vec<f32> = logits.iter().map(|logit| exp(logit - largest)).collect();
                let sum = powers.iter().fold(0.0, |sum, power| sum + power);
                powers.iter().map(|power| power / sum).collect()
            }
        }
    }
}

impl Routes {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.experts.len().checked_div(self.top_k).unwrap_or_default()
    }

    /// Experts and weights of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (u32, f32)> + '_ {
        let range = row * self.top_k..(row + 1) * self.top_k;
        self.experts[range.clone()].iter().copied().zip(self.weights[range].iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOFTMAX: Router = Router {
        scoring: Scoring::Softmax,
        top_k: 2,
        groups: 1,
        top_k_groups: 1,
        renormalize: None,
        scale: 1.0,
        uniform: false,
    };
    const SIGMOID: Router = Router { scoring: Scoring::Sigmoid, renormalize: Some(1e-20), scale: 2.5, ..SOFTMAX };

    fn check(router: Router, logits: &[f32], correction: Option<&[f32]>, expected: &[u32]) -> Routes {
        let routes = router.route(logits, logits.len(), correction);
        assert_eq!(routes.experts, expected, "{logits:?} {correction:?}");
        routes
    }

    #[test]
    fn softmax_weights_are_probabilities_of_all_or_of_the_chosen() {
        let logits = [0.0, 2.0_f32.ln(), 5.0_f32.ln(), -1e9, 0.0];
        let routes = check(SOFTMAX, &logits, None, &[1, 2]);
        let expected = [2.0 / 9.0, 5.0 / 9.0];
        assert!(routes.weights.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{routes:?}");
        let routes = check(Router { renormalize: Some(0.0), ..SOFTMAX }, &logits, None, &[1, 2]);
        assert!((routes.weights[0] - 2.0 / 7.0).abs() < 1e-6 && (routes.weights[1] - 5.0 / 7.0).abs() < 1e-6);
    }

    #[test]
    fn ties_go_to_the_lowest_id() {
        check(SOFTMAX, &[1.0, 3.0, 3.0, 3.0, 2.0], None, &[1, 2]);
        check(SIGMOID, &[0.5; 7], None, &[0, 1]);
        check(SIGMOID, &[0.0, 0.0, 0.0, 9.0], Some(&[0.5, 0.5, 0.5, 0.0]), &[0, 1]);
    }

    #[test]
    fn a_correction_selects_and_is_not_in_the_weights() {
        let correction = [7.0, 7.2, 7.0, 7.2];
        let routes = check(SIGMOID, &[2.0, 0.0, 2.0, -1.0], Some(&correction), &[0, 2]);
        assert!(routes.weights.iter().all(|weight| (weight - 1.25).abs() < 1e-6), "{routes:?}");
        let correction = [7.0, 7.9, 7.0, 7.9];
        let routes = check(SIGMOID, &[2.0, 0.0, 2.0, -1.0], Some(&correction), &[1, 3]);
        let (a, b) = (0.5, 1.0 / (1.0 + 1.0_f32.exp()));
        assert!((routes.weights[0] - 2.5 * a / (a + b)).abs() < 1e-6, "{routes:?}");
    }

    #[test]
    fn experts_come_from_the_best_groups_alone() {
        let router = Router { groups: 3, top_k_groups: 1, ..SIGMOID };
        // Expert 2 is the best of all, but the two of group 0 are better together; equal scores
        // both count.
        check(router, &[1.0, 1.0, 1.3, -9.0, 0.9, 0.9], None, &[0, 1]);
        // Negative corrections: experts of other groups are excluded, even if kept ones rank below
        // zero.
        check(router, &[0.0; 6], Some(&[-3.0, -3.0, -2.0, -2.5, -4.0, -0.6]), &[2, 3]);
        let two = Router { groups: 2, top_k_groups: 1, ..SIGMOID };
        check(two, &[0.0; 4], Some(&[f32::NEG_INFINITY; 4]), &[0, 1]);
        check(two, &[0.0; 4], Some(&[-9.0, -9.0, 0.0, f32::NEG_INFINITY]), &[0, 1]);
        check(two, &[0.0, 0.0, 1.0, 1.0], None, &[2, 3]);
        // Equal groups: the first.
        check(two, &[0.0; 4], None, &[0, 1]);
    }

    #[test]
    fn settings_that_leave_too_few_experts_do_not_fit() {
        assert!(SOFTMAX.fits(2) && !SOFTMAX.fits(1) && !SOFTMAX.fits(0));
        assert!(Router { groups: 4, top_k_groups: 2, ..SIGMOID }.fits(8));
        assert!(!Router { groups: 4, top_k_groups: 1, top_k: 3, ..SIGMOID }.fits(8));
        assert!(!Router { groups: 3, ..SIGMOID }.fits(8));
        assert!(!Router { groups: 0, ..SIGMOID }.fits(8));
        assert!(!Router { top_k_groups: 2, ..SIGMOID }.fits(8));
    }

    #[test]
    fn a_uniform_router_chooses_all_experts_equally_often_from_logits_that_favour_few() {
        // Logits that differ little from row to row, as those of random weights do.
        let rows = 4096;
        let logits: Vec<f32> = (0..rows * 64).map(|at| (at % 64) as f32 + (at / 64) as f32 * 1e-3).collect();
        let biased = Router { top_k: 8, ..SOFTMAX };
        assert!(biased.route(&logits, 64, None).experts.iter().all(|expert| *expert >= 56));
        for router in
            [Router { uniform: true, ..biased }, Router { uniform: true, groups: 8, top_k_groups: 4, ..biased }]
        {
            let correction: Vec<f32> = (0..64).map(|at| at as f32).collect();
            let routes = router.route(&logits, 64, Some(&correction));
            let mut counts = [0_usize; 64];
            routes.experts.iter().for_each(|expert| counts[*expert as usize] += 1);
            // 512 each; the standard deviation is below 22.
            assert!(counts.iter().all(|count| (400..=624).contains(count)), "{counts:?}");
            // Neighbouring rows choose independently: 8 of 64 share one on average.
            let experts = |row: usize| routes.row(row).map(|(expert, _)| expert);
            let shared = |row: usize| experts(row).filter(|one| experts(row + 1).any(|other| other == *one)).count();
            let shared: usize = (0..rows - 1).map(shared).sum();
            assert!((0.8..1.6).contains(&(shared as f64 / rows as f64)), "{shared}");
            assert_eq!(routes, router.route(&logits, 64, None), "the choice depends on logits alone");
        }
    }

    #[test]
    fn logits_that_are_no_numbers_do_not_panic() {
        for router in [SOFTMAX, SIGMOID, Router { groups: 2, ..SIGMOID }] {
            for logit in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                assert_eq!(router.route(&[logit; 4], 4, None).experts.len(), 2);
            }
        }
    }

    proptest! {
        #[test]
        fn rows_do_not_see_each_other(rows in prop::collection::vec(prop::collection::vec(-4_i8..4, 6), 1..5)) {
            let router = Router { groups: 3, top_k_groups: 2, top_k: 3, ..SIGMOID };
            let rows: Vec<Vec<f32>> =
                rows.iter().map(|row| row.iter().map(|logit| f32::from(*logit)).collect()).collect();
            let together = router.route(&rows.concat(), 6, None);
            for (at, row) in rows.iter().enumerate() {
                let alone = router.route(row, 6, None);
                prop_assert!(alone.experts.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert_eq!(alone.row(0).collect::<Vec<_>>(), together.row(at).collect::<Vec<_>>());
            }
        }
    }
}
