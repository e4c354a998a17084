//! Verdicts in races with a known truth: the fast part of the example of the same name.

#[path = "../examples/verdicts/simulated.rs"]
mod simulated;

use simulated::{Drift, EQUAL, Setting, Stalls, TRUTHS, Tally, run};

const RACES: usize = 60;

fn all(setting: Setting) -> Vec<(&'static str, Tally)> {
    TRUTHS.iter().zip(1..).map(|(truth, seed)| (truth.name, run(truth, setting, RACES, seed))).collect()
}

#[test]
fn claims_have_the_right_sign_whatever_the_machine_does() {
    for (stalls, share, drift) in [
        (Stalls::Bursts, 0.0, Drift::Walk),
        (Stalls::Slices, 0.6, Drift::Linear),
        (Stalls::Throughout, 0.1, Drift::Linear),
        (Stalls::Episodes, 0.3, Drift::None),
    ] {
        for repeats in [3, 5] {
            let tallies = all(Setting { repeats, stalls, share, drift });
            let signed = tallies.iter().filter(|(name, _)| *name != EQUAL);
            let sum = signed.fold(Tally::default(), |sum, (_, tally)| sum.and(*tally));
            // At most one in 200.
            assert!(sum.wrong * 200 <= sum.races, "{stalls:?} {share} {repeats}: {} of {}", sum.wrong, sum.races);
        }
    }
}

#[test]
fn a_gain_of_five_percent_is_found_in_five_repeats_with_and_without_stalls_that_steps_tell() {
    for share in [0.0, 0.45] {
        let tallies = all(Setting { repeats: 5, stalls: Stalls::Slices, share, drift: Drift::None });
        let found = tallies.iter().find(|(name, _)| *name == "+5%").expect("a truth").1;
        // 80% in many more races, minus two standard errors.
        assert!(found.pays * 100 >= found.races * 70, "{share}: {} of {}", found.pays, found.races);
    }
}
